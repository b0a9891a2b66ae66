"""Seeded random generators, one for each purpose.

With separate generators, a change in how lengths are drawn does not change the arrival times of the
same seed.
"""

from zlib import crc32

import numpy as np


def generator(seed: int, purpose: str) -> np.random.Generator:
    """The generator of `purpose` under `seed` (>= 0): the same pair gives the same bits."""
    return np.random.Generator(np.random.PCG64([seed, crc32(purpose.encode())]))
