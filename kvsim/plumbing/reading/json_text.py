"""Strict JSON from a file or a line, with bounded depth and numbers that fit 64 bits."""

import json
import math
import re
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NoReturn

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import read_bytes

MOST_BYTES = 256 << 20  # of one document
MOST_DEPTH = 64
LARGEST = (1 << 63) - 1
LONGEST_FRACTION = 400  # characters; no double needs more than 24
_MANY_DIGITS = r"[0-9]{19}"
_ESCAPED_SURROGATE = r"\\u[dD][89a-fA-F]"


class JsonError(ValueError):
    """Text that kvsim does not accept as JSON; the message says why."""


def loads(
    text: str | bytes, *, exact: bool = False, unsigned: bool = False, constants: bool = False
) -> Any:
    """Parse a JSON text; JsonError if it is not valid.

    exact: parse fractions as Decimal, so that nothing is rounded. unsigned: allow integers up to
    2**64 - 1, such as hashes. constants: allow Infinity, which Python's json writes.

    Also refused are NaN, integers beyond 64 bits, fractions too large for a double, and more than
    MOST_DEPTH nested levels. So are lone surrogates (half of a UTF-16 pair), which cannot be
    written to a file again.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        value = json.loads(
            text,
            parse_float=_exact if exact else _fraction,
            # The hook costs time: it is left out where no number can be too long.
            parse_int=(_unsigned if unsigned else _whole) if re.search(_MANY_DIGITS, text) else int,
            parse_constant=_infinity if constants else _no_constant,
        )
    except RecursionError:
        raise JsonError(_TOO_DEEP) from None
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise JsonError(str(error)) from None
    except JsonError:
        raise
    except ValueError as error:
        raise JsonError(str(error)) from None
    if text.count("[") + text.count("{") > MOST_DEPTH and isinstance(value, dict | list):
        _check_depth(value)
    if re.search(_ESCAPED_SURROGATE, text):
        _check_surrogates(value)
    return value


def parse_object(text: str | bytes, where: str, *, constants: bool = False) -> dict[str, Any]:
    """The JSON object in a text; InputError if it is not one. constants: allow Infinity, see
    `loads`.
    """
    try:
        value = loads(text, constants=constants)
    except JsonError as fault:
        raise InputError(f"not JSON: {fault}", where=where) from None
    if not isinstance(value, dict):
        raise InputError("not a JSON object", where=where, value=_name_of(value))
    return value


def read_object(path: Path, *, constants: bool = False) -> dict[str, Any]:
    """The JSON object in a file, gzip or plain; InputError if it is not one. constants: allow
    Infinity, see `loads`.
    """
    return parse_object(read_bytes(path, MOST_BYTES), str(path), constants=constants)


_TOO_DEEP = f"nested more than {MOST_DEPTH} levels deep"


def _fraction(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise JsonError(f"the number {_short(text)} is too large")
    return value


def _exact(text: str) -> Decimal:
    if len(text) > LONGEST_FRACTION:
        raise JsonError(f"the number {_short(text)} is too long")
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of twenty digits
        raise JsonError(f"the number {_short(text)} is too large") from None


def _whole(text: str) -> int:
    if len(text) > 20 or not -LARGEST <= (value := int(text)) <= LARGEST:
        raise JsonError(f"the number {_short(text)} is beyond 64 bits")
    return value


def _unsigned(text: str) -> int:
    if len(text) > 20 or not -LARGEST <= (value := int(text)) < 1 << 64:
        raise JsonError(f"the number {_short(text)} is beyond 64 bits")
    return value


def _infinity(name: str) -> float:
    return float(name) if name != "NaN" else _no_constant(name)


def _no_constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is not JSON")


def _check_depth(value: Any) -> None:
    """JsonError if a value is nested too deeply. Levels are checked one by one, since recursion
    could overflow.
    """
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise JsonError(_TOO_DEEP)


def _check_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise JsonError("half of a surrogate pair is no character") from None


def _short(number: str) -> str:
    return number if len(number) <= 24 else f"{number[:20]}... of {len(number):,} digits"


def _name_of(value: Any) -> str:
    names: dict[type, str] = {list: "a list", str: "a string", bool: "a truth value"}
    return names.get(type(value), "null" if value is None else "a number")
