"""One test over many cases: as cheap to collect as one, and it names each case that fails."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Case = TypeVar("Case")


def check_each(cases: Iterable[Case], check: Callable[[Case], object]) -> None:
    """Checks every case, also after one failed, and raises all failures, each with its case.

    ValueError: there is no case.
    """
    cases = list(cases)
    failures: list[Exception] = []
    for case in cases:
        try:
            check(case)
        except Exception as error:
            error.add_note(f"case {case}")
            failures.append(error)
    if not cases:
        raise ValueError("no case to check")
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(cases)} cases", failures)
