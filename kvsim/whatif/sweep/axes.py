"""Axes of a sweep: keys of a scenario and their values.

    a.b=1,2,4           these values, each as TOML reads it
    a.b=1:8:4           four values from 1 to 8, equally far apart
    a.b=1:64:7log       seven values, each the same multiple of the one before
    a.b=1,2; c=x,y      (zip) both keys move together: (1, x), (2, y)

A range between two integers holds integers, rounded to nearest, none twice; write 1.0:8.0:4 for
numbers in between.
"""

import math
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise, product
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.toml_text import value_of

Settings = dict[str, Any]
_RANGE = re.compile(r"([^:,\[\]{}\"']+):([^:,\[\]{}\"']+):(\d+)\s*(:?log)?")
_MOST_VALUES = 100_000


class Axis(NamedTuple):
    """Keys that vary together.

    rows: tuples of their values, one tuple per step. notes: warnings about a range that is not
    evenly spaced after rounding.
    """

    keys: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()


def parse_axis(text: str, flag: str = "--vary") -> Axis:
    """Parse one `--vary`; InputError for an invalid one."""
    key, equals, rest = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")) or not rest.strip():
        raise InputError("not of the form a.b=1,2,4 or a.b=lo:hi:n", where=flag, value=text)
    if key == "seed":
        raise InputError("seeds are not an axis", where=flag, value=text, remedy="use --repeat")
    values, note = _range(rest.strip(), f"{flag} {key}")
    if values is None:
        values = [value_of(part) for part in _split(rest)]
    if len({repr(value) for value in values}) < len(values):
        raise InputError("the same value twice", where=f"{flag} {key}", value=rest)
    notes = () if note is None else (f"{key}: {note}",)
    return Axis((key,), tuple((value,) for value in values), notes)


def parse_zip(text: str) -> Axis:
    """Parse one `--zip`: several axes of equal length, separated by `;`, become one axis."""
    axes = [parse_axis(part, "--zip") for part in text.split(";")]
    lengths = {len(axis.rows) for axis in axes}
    if len(axes) < 2 or len(lengths) > 1:
        raise InputError(
            "needs two keys or more with as many values each, such as 'a=1,2; b=3,4'",
            where="--zip",
            value=text,
        )
    rows = zip(*(axis.rows for axis in axes), strict=True)
    return Axis(
        tuple(axis.keys[0] for axis in axes),
        tuple(tuple(v for (v,) in row) for row in rows),
        tuple(note for axis in axes for note in axis.notes),
    )


def points(axes: Iterable[Axis]) -> Iterator[Settings]:
    """The product of all axes, with the last axis varying fastest; without axes a single empty
    setting.
    """
    axes = list(axes)
    keys = [key for axis in axes for key in axis.keys]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise InputError("varied twice", where="--vary", value=twice)
    for rows in product(*(axis.rows for axis in axes)):
        yield dict(zip(keys, (value for row in rows for value in row), strict=True))


def _range(text: str, where: str) -> tuple[list[Any] | None, str | None]:
    """Values of `lo:hi:n` or `lo:hi:nlog` (None if the text is no range), and a warning if unevenly
    spaced.
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        return None, None
    low, high = (value_of(part) for part in match.groups()[:2])
    if not all(type(bound) in (int, float) for bound in (low, high)):
        return None, None
    count, log = int(match[3]), match[4] is not None
    if not 2 <= count <= _MOST_VALUES or not low < high or not math.isfinite(high - low):
        raise InputError(
            "a range needs two values or more, the first below the last",
            where=where,
            value=text,
            limit=f"2 to {_MOST_VALUES:,} values",
        )
    if log and low <= 0:
        raise InputError("a logarithmic range starts above 0", where=where, value=low)
    steps = [index / (count - 1) for index in range(count)]
    values = [low * (high / low) ** step if log else low + (high - low) * step for step in steps]
    values[-1] = high
    if type(low) is int and type(high) is int:
        whole = list(dict.fromkeys(round(value) for value in values))
        return whole, None if log else _uneven(low, high, count, whole)
    return [float(value) for value in values], None


def _uneven(low: int, high: int, count: int, whole: list[int]) -> str | None:
    """A warning about a range rounded to integers, if its steps are not equal."""
    gaps = {after - before for before, after in pairwise(whole)}
    if len(gaps) < 2 and len(whole) == count:
        return None
    shown = ", ".join(map(str, whole if len(whole) <= 8 else [*whole[:7], "..."]))
    between = f"{float(low)}:{float(high)}:{count}"
    return f"rounded to whole numbers: {shown}; write {between} for those in between"


def _split(text: str) -> list[str]:
    """Split at commas that are not inside brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    if not all(part.strip() for part in parts):
        raise InputError("an empty value", where="--vary", value=text)
    return parts
