"""Values out of a JSON object of unknown make: typed, bounded, every fault one line."""

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import LARGEST_WHOLE
from kvsim.readers.description import NS_PER_S

MOST_SECONDS = 1e10  # some 300 years: what a clock since 1970 may show
MOST_TOKENS = 1 << 40
_WHOLE = re.compile("-?[0-9]{1,20}")


def number(table: Mapping[str, Any], key: str, where: str) -> float | None:
    """A finite number; None where it is missing or null."""
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError("not a number", where=f"{where}: {key}", value=value)
    return float(value)


def whole(value: Any, where: str) -> int | None:
    """A whole number of 64 bits, or one as text; None for null."""
    if value is None:
        return None
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if type(value) is not int:
        raise InputError("not a whole number", where=where, value=value)
    if abs(value) > LARGEST_WHOLE:
        raise InputError("not a number of 64 bits", where=where, value=value, limit=LARGEST_WHOLE)
    return value


def tokens(value: Any, where: str) -> int | None:
    """A count of tokens; None for null."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise InputError("not a whole number", where=where, value=value)
    if not 0 <= value <= MOST_TOKENS:
        raise InputError("not a count of tokens", where=where, value=value, limit=MOST_TOKENS)
    return int(value)


def nanoseconds(seconds: Any, where: str) -> int | None:
    """Whole nanoseconds of a time in seconds; None for null."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InputError("not a time", where=where, value=seconds)
    if not -MOST_SECONDS <= seconds <= MOST_SECONDS:
        raise InputError("not a time in seconds", where=where, value=seconds, limit=MOST_SECONDS)
    return round(Decimal(str(seconds)) * NS_PER_S)  # a time since 1970 has too many digits


def table(value: Any, where: str) -> dict[str, Any]:
    """A JSON object; {} for null."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError("not a JSON object", where=where, value=type(value).__name__)
    return value


def rows(value: Any, where: str) -> list[Any]:
    """A JSON list; [] for null."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise InputError("not a list", where=where, value=type(value).__name__)
    return value


def text(value: Any) -> str | None:
    """A string that is not empty, else None."""
    return value if isinstance(value, str) and value else None
