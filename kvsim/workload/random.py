"""Seeded random generators, one for each purpose.

So a change in how lengths are drawn leaves the arrival times of the same seed as they were.
"""

from zlib import crc32

import numpy as np


def generator(seed: int, purpose: str) -> np.random.Generator:
    """The generator of `purpose` under `seed` (>= 0): the same pair gives the same bits."""
    return np.random.Generator(np.random.PCG64([seed, crc32(purpose.encode())]))
