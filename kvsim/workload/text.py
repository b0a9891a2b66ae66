"""Parse numbers and JSON objects of recorded requests; every error is one line with file and
row.
"""

from decimal import Decimal, InvalidOperation
from typing import Any

from kvsim.plumbing.reading.files import row_error
from kvsim.plumbing.reading.json_text import JsonError, loads

MOST_TOKENS = 10**9
MOST_SECONDS = 9 * 10**9  # the year 2255: beyond it a time is a mistake


def whole_number(value: object, name: str, line: int, column: str, least: int) -> int:
    """An integer >= least, parsed from a CSV field or a JSON value."""
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
    """A length in tokens, at least 1, parsed from a field."""
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
        raise row_error(name, line, f"{column} is out of range", value, f"{MOST_SECONDS:,} s")
    return ps


def json_object(line: str, name: str, number: int) -> dict[str, Any]:
    """The JSON object on a line; fractions become Decimal, so that nothing is rounded."""
    try:
        value = loads(line, exact=True)
    except JsonError as fault:
        what = "not a JSON object (cut short?)" if line.strip() else "the line is empty"
        raise row_error(name, number, what, fault if line.strip() else None) from None
    if not isinstance(value, dict):
        raise row_error(name, number, "not a JSON object", line[:40])
    return value


def _integral(number: Decimal) -> int:
    if not number.is_finite() or number.adjusted() > 30 or number != number.to_integral_value():
        raise ValueError
    return int(number)
