"""Options: the fields of a class are the keys of its TOML table.

Every allocator, placement, scheduler, step-time form, arrival process and trace format derives
from `Options`: frozen, typed, unknown keys refused, every fault one line that names the key.
"""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from kvsim.plumbing.errors import InputError


class Options(BaseModel):
    """A frozen table of options. Unknown keys are refused: a typo is never a silent default."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def parse(cls, table: Mapping[str, Any], where: str) -> Self:
        """Validate `table`, found at `where` (such as `scheduler`); raise InputError on a fault."""
        try:
            return cls.model_validate(dict(table))
        except ValidationError as error:
            raise input_error(error, where, type(cls), list(cls.model_fields)) from None


def input_error(
    error: ValidationError, where: str, _owner: object = None, known: list[str] | None = None
) -> InputError:
    """The first fault of a pydantic error as one InputError line."""
    fault = error.errors(include_url=False)[0]
    key = ".".join([where, *(str(part) for part in fault["loc"])]).strip(".")
    if fault["type"] == "extra_forbidden":
        names = ", ".join(sorted(known or []))
        return InputError("unknown key", where=key, remedy=f"known keys: {names}")
    if fault["type"] == "missing":
        return InputError("required key is missing", where=key)
    return InputError(fault["msg"].removeprefix("Value error, "), where=key, value=fault["input"])
