"""Reading recorded text: every fault is one line that names the file and the row."""

import gzip
import json
import zlib
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError

MOST_TOKENS = 10**9
MOST_SECONDS = 10**11  # the year 5138: beyond it a time is a mistake


class Text(NamedTuple):
    """A file's lines (line ends kept off, a trailing empty line dropped) and its name."""

    name: str
    lines: list[str]


def read_text(path: Path) -> Text:
    """The lines of a UTF-8 file, gzip or plain; InputError if there are none or not UTF-8."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read it: {error.strerror}", where=str(path)) from None
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"broken gzip: {error}", where=path.name) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise row_error(
            path.name, line, "not UTF-8 text", f"byte 0x{data[error.start]:02x}"
        ) from None
    lines = text.replace("\r\n", "\n").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError("the file is empty", where=path.name)
    return Text(path.name, lines)


def row_error(
    name: str,
    line: int,
    what: str,
    value: object = None,
    limit: object = None,
    remedy: str | None = None,
) -> InputError:
    """An InputError at a 1-based line of a file."""
    return InputError(what, where=f"{name}, line {line}", value=value, limit=limit, remedy=remedy)


def whole_number(value: object, name: str, line: int, column: str, least: int) -> int:
    """An integer >= least out of a CSV field or a JSON value."""
    try:
        if type(value) is int:
            number = value
        elif isinstance(value, str):
            number = int(value) if value.isdecimal() else _integral(Decimal(value))
        elif isinstance(value, Decimal):
            number = _integral(value)
        else:
            raise ValueError
    except (ValueError, InvalidOperation):
        raise row_error(name, line, f"{column} is not a whole number", repr(value)) from None
    if not least <= number <= MOST_TOKENS:
        limit = f"{least} to {MOST_TOKENS:,}"
        raise row_error(name, line, f"{column} is out of range", number, limit)
    return number


def tokens(value: object, name: str, line: int, column: str) -> int:
    """A length in tokens, at least 1."""
    return whole_number(value, name, line, column, 1)


def scaled_time(value: object, unit_ps: int, name: str, line: int, column: str) -> int:
    """A time in units of `unit_ps` (CSV field or JSON number) in whole ps, rounded to nearest."""
    try:
        if type(value) is int or isinstance(value, str | Decimal):
            number = Decimal(value)
        else:
            raise ValueError
        if not number.is_finite() or number.adjusted() > 30:
            raise ValueError
    except (ValueError, InvalidOperation):
        raise row_error(name, line, f"{column} is not a time", repr(value)) from None
    if number < 0:
        raise row_error(name, line, f"{column} is negative", value, "0 or later")
    ps = int((number * unit_ps).to_integral_value())
    if ps > MOST_SECONDS * 10**12:
        raise row_error(name, line, f"{column} is out of range", value, f"{MOST_SECONDS:.0e} s")
    return ps


def json_object(line: str, name: str, number: int) -> dict[str, Any]:
    """The JSON object on a line; fractions become Decimal, so that nothing is rounded."""
    try:
        value = json.loads(line, parse_float=Decimal, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        what = "not a JSON object (cut short?)" if line.strip() else "the line is empty"
        detail = getattr(error, "msg", None)
        raise row_error(name, number, what, detail) from None
    if not isinstance(value, dict):
        raise row_error(name, number, "not a JSON object", line[:40])
    return value


def _integral(number: Decimal) -> int:
    if not number.is_finite() or number.adjusted() > 30 or number != number.to_integral_value():
        raise ValueError
    return int(number)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
