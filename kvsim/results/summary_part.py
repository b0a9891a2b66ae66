"""Base class for tables of summary.json: numbers by attribute and by key, and their bounds."""

from collections.abc import Iterator, Mapping
from dataclasses import Field as DataclassField
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, Field, Strict

from kvsim.plumbing.options import within_bounds

# Numbers of a stored summary: whole from 0 or from 1 on, from 0 on, of either sign, from 0 to 1.
_Whole = Annotated[int, Strict(), AfterValidator(within_bounds)]
_Real = Annotated[float, Strict(), Field(allow_inf_nan=False), AfterValidator(within_bounds)]
Count = Annotated[_Whole, Field(ge=0)]
Positive = Annotated[_Whole, Field(ge=1)]
Measured = Annotated[_Real, Field(ge=0)]
Difference = Annotated[_Real, Field()]
Share = Annotated[_Real, Field(ge=-1e-9, le=1 + 1e-9)]


# Of a field with a default: summary.json holds null for None, where the key would be missing.
NULL = {"null": True}


@cache
def _fields(part: type["SummaryPart"]) -> "dict[str, DataclassField[Any]]":
    return {each.name: each for each in fields(part)}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SummaryPart(Mapping[str, Any]):
    """A table of summary.json: numbers by attribute (`run.ttft_s.p50`), or by their keys where a
    key is data (`run["ttft_s"]["p50"]`). Two tables are equal if all their numbers are.
    """

    def __getitem__(self, key: str) -> Any:
        if key in _fields(type(self)) and self._has(key):
            return getattr(self, key)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return filter(self._has, _fields(type(self)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.as_json()})"

    def _has(self, key: str) -> bool:
        own = _fields(type(self))[key]
        return own.default is not None or "null" in own.metadata or getattr(self, key) is not None

    def as_json(self) -> dict[str, Any]:
        """The table as in summary.json: plain values, in key order."""
        return {key: _plain(value) for key, value in self.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, SummaryPart):
        return value.as_json()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
