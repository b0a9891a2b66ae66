"""Numbers and texts on a page: compressed and in letters, for scripts/unpack.js to read."""

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


def packed(values: NDArray[Any]) -> str:
    """Whole numbers 0 <= v < 2**32 as text: bytes of equal weight together, so that they shrink."""
    plain = np.ascontiguousarray(values, dtype="<u4")
    planes = plain.view(np.uint8).reshape(-1, 4).T
    return in_letters(zlib.compress(planes.tobytes(), 9))


def packed_differences(values: NDArray[Any]) -> str:
    """Ascending whole numbers, by their steps."""
    return packed(np.diff(np.asarray(values, dtype=np.int64), prepend=0))


def packed_floats(values: NDArray[Any]) -> str:
    """Single-precision numbers, by their bits."""
    return packed(np.ascontiguousarray(values, dtype="<f4").view("<u4"))


def packed_text(text: str) -> str:
    """A text in letters, a quarter to a third of its length."""
    return in_letters(zlib.compress(text.encode(), 9))


def in_letters(compressed: bytes) -> str:
    """Base64 of what zlib made."""
    return base64.b64encode(compressed).decode("ascii")
