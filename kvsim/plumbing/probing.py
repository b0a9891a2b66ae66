"""Whether an option decides anything: a value that happens to be the default's is no idle one."""

from collections.abc import Callable


def decides(value: object, differs: Callable[[object], bool | None]) -> bool:
    """Whether another value than this would give another answer.

    differs(other): whether it would with this value; None where that value is refused. A number
    that is refused was heeded; a word may be no value of this option at all.
    """
    other = _another(value)
    if other is None:
        return False
    found = differs(other)
    return found or (found is None and not isinstance(value, str))


def _another(value: object) -> object:
    """Another value of this kind; None where there is none to try."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value // 2 or 2
    if isinstance(value, float):
        return value / 2
    if isinstance(value, str):
        return "bfloat16" if value == "float32" else "float32"
    return None
