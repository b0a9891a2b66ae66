"""Counts as vLLM's command line accepts them, such as `32k`."""

import re
from typing import Any

_SIZE = r"(\d+(?:\.\d+)?)([kKmMgGtT]?)"
_SCALE = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def whole(value: Any) -> int:
    """The integer that a count means: `8192`; `32k` = 32,000; `32K` = 32,768, as in vLLM."""
    match = re.fullmatch(_SIZE, str(value).replace(",", "").replace("_", "").strip())
    if match is None or len(match[1]) > 18:
        raise ValueError("not a count")
    scale = _BINARY.get(match[2]) or _SCALE[match[2]]
    count = float(match[1]) * scale if "." in match[1] else int(match[1]) * scale
    return int(count)
