"""The interface of a distribution of lengths."""

from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kvsim.plumbing.options import Options

Lengths = NDArray[np.int64]
MOST = 10**9  # tokens; beyond it a length is a mistake


class LengthOptions(Options):
    """Options of one distribution of whole numbers >= `least`: tokens, turns."""

    least: ClassVar[int] = 1

    def draw(self, count: int, rng: np.random.Generator, base: Path) -> Lengths:
        """`count` independent lengths, each >= `least`. base: folder for relative paths."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this


def clipped_lengths(prompt_tokens: int, output_tokens: int, limit: int) -> tuple[int, int]:
    """(prompt, output) cut to a sum of at most `limit` >= 2; a prompt without output may have
    `limit` tokens.
    """
    prompt = min(prompt_tokens, limit - min(1, output_tokens))
    return prompt, min(output_tokens, limit - prompt)


def whole(values: NDArray[np.float64], least: int, most: int | None) -> Lengths:
    """Values rounded to integers and clipped to [least, most]."""
    ceiling = MOST if most is None else most
    return np.rint(np.clip(values, least, ceiling)).astype(np.int64)
