"""Names that users gave, in a sentence: cut where long, their direction kept to themselves."""

import re
from collections.abc import Sequence
from unicodedata import bidirectional

from kvsim.report import numbers

_LONGEST = 60
_TURNS = ("R", "AL", "AN", "RLE", "RLO", "LRE", "LRO", "RLI", "LRI", "FSI", "PDF", "PDI")


def named(text: str) -> str:
    """A name on one line, of sixty characters at most; one that could change the line's direction
    is wrapped in Unicode's isolate.
    """
    line = " ".join(text.split())
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"
    if not any(bidirectional(sign) in _TURNS for sign in line):
        return line
    return f"\N{FIRST STRONG ISOLATE}{line}\N{POP DIRECTIONAL ISOLATE}"


def called(label: str) -> str:
    """A label as a sentence can carry it: in quotes where it could be taken for more than one
    word of it.
    """
    if re.fullmatch(r"[\w.+=/-]{1,60}", label):
        return named(label)
    return f"\N{LEFT DOUBLE QUOTATION MARK}{named(label)}\N{RIGHT DOUBLE QUOTATION MARK}"


def listed(labels: Sequence[str]) -> str:
    """Labels, already as `called`, in a sentence; of many the first three."""
    if len(labels) <= 4:
        return numbers.listed(labels)
    return f"{', '.join(labels[:3])} and {len(labels) - 3} more"
