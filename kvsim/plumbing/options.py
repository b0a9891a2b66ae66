"""Options: the fields of a class are the keys of its TOML table.

Every allocator, placement, scheduler, step-time form, arrival process and trace format derives from
`Options`. They are frozen and typed. Unknown keys are refused, every number has bounds, and every
fault is one line that gives the key.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from kvsim.plumbing.errors import MISSING, InputError
from kvsim.plumbing.wording import none_of, value_error

CONTROL = r"[^\t\n -~\xa0-\U0010ffff]"  # which a terminal would obey
LARGEST_WHOLE = (1 << 63) - 1  # what TOML, the tables and numpy hold
LARGEST, SMALLEST = 1e30, 1e-30  # of fractions: their products and quotients stay finite
_FIRST = ("extra_forbidden", "missing")  # a typo explains the key that is missing beside it


class Options(BaseModel):
    """A frozen table of options. Unknown keys are refused: a typo is never a silent default."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @model_validator(mode="after")
    def _numbers_within_bounds(self) -> Self:
        for name, value in self.__dict__.items():
            within_bounds(value, name)
            if isinstance(value, str) and (found := re.search(CONTROL, value)):
                raise ValueError(f"{name} has the control character {found[0]!r}")
        return self

    @classmethod
    def parse(cls, table: Mapping[str, Any], where: str) -> Self:
        """Validate `table`, found at `where` (such as `scheduler`); raise InputError on a fault."""
        try:
            return cls.model_validate(dict(table))
        except ValidationError as error:
            raise input_error(error, where, cls) from None

    def changed(self, names: Iterable[str]) -> list[str]:
        """The keys among `names` that differ from their default."""
        fields = type(self).model_fields
        return [
            name
            for name in names
            if getattr(self, name) != fields[name].get_default(call_default_factory=True)
        ]

    def refuse_idle(
        self, where: str, names: Iterable[str], because: str, remedy: str = "leave it out"
    ) -> None:
        """InputError for the first key of `names` that was changed although it has no effect.

        where is the table, such as `scheduler`. because says why the key has no effect.
        """
        for name in self.changed(names):
            raise InputError(
                f"changes nothing: {because}",
                where=f"{where}.{name}",
                value=getattr(self, name),
                remedy=remedy,
            )


def within_bounds(value: Any, key: str = "") -> Any:
    """Return the value of `key`. PydanticCustomError if a number in it is too large or small for 64
    bits or a double.
    """
    fault = _beyond(value)
    if fault is not None:
        context = {"key": key, "limit": fault[0], "found": fault[1]}
        raise PydanticCustomError("number_out_of_bounds", "a number out of bounds", context)
    return value


def input_error(
    error: ValidationError, where: str, owner: type[BaseModel] = BaseModel
) -> InputError:
    """Convert a pydantic error to one InputError line, for the fault that explains most.

    owner is the class of options that was validated; the message for an unknown key lists its keys.
    """
    faults = error.errors(include_url=False)
    ranked = (fault for kind in _FIRST for fault in faults if fault["type"] == kind)
    fault = next(ranked, faults[0])
    field = _tagged(fault, owner)
    if field is not None:
        rivals = [each for each in faults if each["loc"][: len(field)] == field]
        return none_of(rivals, ".".join([where, *map(str, field)]).strip("."))
    key = ".".join([where, *(str(part) for part in fault["loc"])]).strip(".")
    if fault["type"] == "extra_forbidden":
        return _unknown_key(key, _owner_of(fault, owner))
    if fault["type"] == "missing":
        return InputError(MISSING, where=key)
    if fault["type"] == "number_out_of_bounds":
        context = fault["ctx"]
        return InputError(
            fault["msg"],
            where=f"{key}.{context['key']}".strip("."),
            value=context["found"],
            limit=context["limit"],
        )
    return value_error(fault, key)


def _unknown_key(key: str, owner: type[BaseModel]) -> InputError:
    known = sorted(owner.model_fields)
    close = get_close_matches(key.rpartition(".")[2], known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    names = f"known keys: {', '.join(known)}" if known else "this table takes no keys"
    return InputError("unknown key", where=key, remedy=hint + names)


def _owner_of(fault: ErrorDetails, owner: type[BaseModel]) -> type[BaseModel]:
    """The Options class of the table that contains the faulty key."""
    for part in fault["loc"][:-1]:
        if isinstance(part, str) and part in owner.model_fields:
            inner = next(_tables(owner.model_fields[part].annotation), None)
            owner = inner or owner
    return owner


def _tagged(fault: ErrorDetails, owner: type[BaseModel]) -> tuple[int | str, ...] | None:
    """The path of the faulty field, if the field accepts several types; else None.

    Pydantic's own path continues with the type that was tried, and would make the message unclear.
    """
    for at, part in enumerate(fault["loc"][:-1]):
        if isinstance(part, str) and part in owner.model_fields:
            annotation = owner.model_fields[part].annotation
            if get_origin(annotation) in (Union, UnionType):
                types = [each for each in get_args(annotation) if each is not NoneType]
                if len(types) > 1:
                    return fault["loc"][: at + 1]
            owner = next(_tables(annotation), owner)
    return None


def _tables(annotation: Any) -> Any:
    """The Options classes in a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _tables(argument)


def _beyond(value: object) -> tuple[str, str] | None:
    """(limit, value) of the first number out of bounds in a value or anywhere inside it; None if
    there is none.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        if -LARGEST_WHOLE <= value <= LARGEST_WHOLE:
            return None
        return f"{LARGEST_WHOLE:,}", f"a whole number of {value.bit_length()} bits"
    if isinstance(value, float):
        if value == 0 or SMALLEST <= abs(value) <= LARGEST:
            return None
        return (f"{LARGEST:g}" if abs(value) > 1 else f"{SMALLEST:g}"), f"{value:g}"
    if isinstance(value, Mapping):
        return next(filter(None, map(_beyond, value.values())), None)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return next(filter(None, map(_beyond, value)), None)
    return None
