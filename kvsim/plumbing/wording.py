"""Pydantic's validation errors in kvsim's words."""

from collections.abc import Mapping, Sequence

from pydantic_core import ErrorDetails

from kvsim.plumbing.errors import InputError

_BOUNDS = {  # kind of fault: (what it says, the key of the bound, how the bound reads)
    "greater_than_equal": ("too small", "ge", "at least"),
    "greater_than": ("too small", "gt", "more than"),
    "less_than_equal": ("too large", "le", "at most"),
    "less_than": ("too large", "lt", "less than"),
}
_KINDS = {
    "int_type": "not a whole number",
    "int_parsing": "not a whole number",
    "int_from_float": "not a whole number",
    "int_parsing_size": "not a whole number of 64 bits",
    "float_type": "not a number",
    "float_parsing": "not a number",
    "finite_number": "not a finite number",
    "bool_type": "neither true nor false",
    "bool_parsing": "neither true nor false",
    "string_type": "not text",
    "list_type": "not a list",
    "tuple_type": "not a list",
    "dict_type": "not a table",
    "model_type": "not a table",
    "dataclass_type": "not a table",
}


def none_of(faults: Sequence[ErrorDetails], where: str) -> InputError:
    """One InputError for a value that fits none of a field's types; it lists what each type
    requires.
    """
    errors = [value_error(fault, where) for fault in faults]
    what = " and ".join(dict.fromkeys(each.what for each in errors))
    limits = " or ".join(each.limit for each in errors if isinstance(each.limit, str))
    return InputError(what, where=where, value=errors[0].value, limit=limits or None)


def value_error(fault: ErrorDetails, where: str) -> InputError:
    """One InputError for a value, with the limit it exceeded; rare faults in pydantic's wording."""
    kind, context, limit = fault["type"], fault.get("ctx", {}), None
    value = fault["input"]
    if kind in _BOUNDS:
        what, key, bound = _BOUNDS[kind]
        limit = f"{bound} {_number(context[key])}"
    elif kind == "too_short":
        what, limit = "too few items", f"at least {context['min_length']}"
    elif kind == "literal_error":
        what, limit = "not one of the known values", str(context["expected"])
    else:
        what = _KINDS.get(kind, fault["msg"].removeprefix("Value error, "))
    if kind == "value_error" and isinstance(value, Mapping):
        value = None  # keys of a table that do not go together: what says which
    return InputError(what, where=where, value=value, limit=limit)


def _number(bound: object) -> str:
    return f"{bound:,}" if isinstance(bound, int) else str(bound)
