"""Typed and bounded values from a JSON object of another tool, with one-line errors."""

import math
import re
from decimal import Decimal
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import LARGEST_WHOLE
from kvsim.readers.description import NS_PER_S
from kvsim.readers.parsing.ledger import SourceLedger

MOST_SECONDS = 1e10  # some 300 years: what a clock since 1970 may show
MOST_TOKENS = 1 << 40
NS_PER_MS = 10**6
_WHOLE = re.compile("-?[0-9]{1,20}")


class Fields:
    """A JSON object and its place, for error messages.

    null counts as an empty object, and a key with the value null as missing. ledger records the
    keys that exist and the keys that were read; path is the object's path in it.
    """

    def __init__(
        self, value: Any, where: str, ledger: SourceLedger | None = None, path: str = ""
    ) -> None:
        if value is not None and not isinstance(value, dict):
            raise InputError("not a JSON object", where=where, value=type(value).__name__)
        self.items: dict[str, Any] = value or {}
        self.where = where
        self.ledger, self.path = ledger, path
        if ledger is not None:
            ledger.there("keys", path, self.items)

    def _at(self, key: str) -> Any:
        if self.ledger is not None:
            self.ledger.take("keys", self.path, key)
        return self.items.get(key)

    def all(self) -> dict[str, Any]:
        """All keys with their values; all are recorded as read."""
        for key in self.items:
            self._at(key)
        return self.items

    def inner(self, key: str) -> str:
        """The ledger path of the value of `key`."""
        return f"{self.path}.{key}" if self.path else key

    def place(self, key: str) -> str:
        """The place of the value of `key`, for error messages."""
        return f"{self.where}: {key}"

    def get(self, key: str, otherwise: Any = None) -> Any:
        """The value of `key` without a check of its type; `otherwise` if it is missing."""
        value = self._at(key)
        return value if key in self.items else otherwise

    def table(self, key: str) -> "Fields":
        """The value of `key` as an object; an empty one for null."""
        return Fields(self._at(key), self.place(key), self.ledger, self.inner(key))

    def rows(self, key: str) -> list[Any]:
        """The value of `key` as a list; an empty one for null."""
        return rows(self._at(key), self.place(key))

    def tables(self, key: str) -> list["Fields"]:
        """The value of `key` as a list of objects."""
        inner = f"{self.inner(key)}[]"
        return [Fields(value, self.place(key), self.ledger, inner) for value in self.rows(key)]

    def number(self, key: str) -> float | None:
        """The value of `key` as a finite number."""
        value = self._at(key)
        if value is None:
            return None
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not math.isfinite(value):
            raise InputError("not a number", where=self.place(key), value=value)
        return float(value)

    def whole(self, key: str) -> int | None:
        """The value of `key` as a 64-bit integer; text that is one is accepted."""
        return whole(self._at(key), self.place(key))

    def tokens(self, *keys: str) -> int | None:
        """A number of tokens: the value of the first of `keys` that is not missing."""
        key = next((key for key in keys if self._at(key) is not None), keys[0])
        return tokens(self._at(key), self.place(key))

    def nanoseconds(self, key: str) -> int | None:
        """The value of `key` in seconds, converted to whole nanoseconds."""
        return nanoseconds(self._at(key), self.place(key))

    def after(self, start_ns: int | None, key: str) -> int | None:
        """The time (ns) that is the value of `key` in milliseconds after `start_ns`."""
        milliseconds = self.number(key)
        if start_ns is None or milliseconds is None:
            return None
        return start_ns + round(milliseconds * NS_PER_MS)

    def text(self, *keys: str) -> str | None:
        """The first value among `keys` that is a non-empty string."""
        return next((found for key in keys if (found := text(self._at(key)))), None)


def whole(value: Any, where: str) -> int | None:
    """Convert to a 64-bit integer; text that is one is accepted; None for null."""
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
    """Convert to a number of tokens; None for null."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise InputError("not a whole number", where=where, value=value)
    if not 0 <= value <= MOST_TOKENS:
        raise InputError("not a count of tokens", where=where, value=value, limit=MOST_TOKENS)
    return int(value)


def nanoseconds(seconds: Any, where: str) -> int | None:
    """Convert seconds to whole nanoseconds; None for null."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InputError("not a time", where=where, value=seconds)
    if not -MOST_SECONDS <= seconds <= MOST_SECONDS:
        raise InputError("not a time in seconds", where=where, value=seconds, limit=MOST_SECONDS)
    return round(Decimal(str(seconds)) * NS_PER_S)  # a time since 1970 has too many digits


def rows(value: Any, where: str) -> list[Any]:
    """Check that a value is a JSON list; [] for null."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise InputError("not a list", where=where, value=type(value).__name__)
    return value


def text(value: Any) -> str | None:
    """The value if it is a non-empty string, else None."""
    return value if isinstance(value, str) and value else None
