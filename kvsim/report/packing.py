"""Numbers and texts compressed and encoded in Base64, for a page's script scripts/unpack.js."""

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


def packed(values: NDArray[Any]) -> str:
    """Integers 0 <= v < 2**32 as text. The lowest bytes come first, then the next ones, ..., which
    compresses better.
    """
    plain = np.ascontiguousarray(values, dtype="<u4")
    planes = plain.view(np.uint8).reshape(-1, 4).T
    return in_letters(zlib.compress(planes.tobytes(), 9))


def packed_differences(values: NDArray[Any]) -> str:
    """Ascending integers as text, packed as differences of neighbours."""
    return packed(np.diff(np.asarray(values, dtype=np.int64), prepend=0))


def packed_floats(values: NDArray[Any]) -> str:
    """Numbers in single precision as text, packed by their bit patterns."""
    return packed(np.ascontiguousarray(values, dtype="<f4").view("<u4"))


def packed_text(text: str) -> str:
    """A text compressed and in Base64, which takes a quarter to a third of its length."""
    return in_letters(zlib.compress(text.encode(), 9))


def in_letters(compressed: bytes) -> str:
    """Compressed bytes in Base64."""
    return base64.b64encode(compressed).decode("ascii")
