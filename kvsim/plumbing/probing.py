"""Find out whether an option has any effect, by trying another value."""

from collections.abc import Callable


def decides(value: object, differs: Callable[[object], bool | None]) -> bool:
    """Whether another value than this would change the result.

    differs(other) says so for one other value; None means that this value is refused. A refused
    number shows that the option is read. A refused word may only be invalid for the option, and
    shows nothing.
    """
    other = _another(value)
    if other is None:
        return False
    found = differs(other)
    return found or (found is None and not isinstance(value, str))


def _another(value: object) -> object:
    """Another value of the same type; None if there is none to try."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value // 2 or 2
    if isinstance(value, float):
        return value / 2
    if isinstance(value, str):
        return "bfloat16" if value == "float32" else "float32"
    return None
