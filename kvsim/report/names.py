"""Labels of runs in a sentence."""

import re
from collections.abc import Sequence

from kvsim.report import numbers


def called(label: str) -> str:
    """A label as a sentence can carry it: in quotes where it could be taken for more than one
    word of it.
    """
    return (
        label
        if re.fullmatch(r"[\w.+=/-]+", label)
        else f"\N{LEFT DOUBLE QUOTATION MARK}{label}\N{RIGHT DOUBLE QUOTATION MARK}"
    )


def listed(labels: Sequence[str]) -> str:
    """Labels, already as `called`, in a sentence; of many the first three."""
    if len(labels) <= 4:
        return numbers.listed(labels)
    return f"{', '.join(labels[:3])} and {len(labels) - 3} more"
