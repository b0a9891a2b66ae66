"""Names from users, made safe to put into a sentence: shortened, and their direction isolated."""

import re
from collections.abc import Sequence
from unicodedata import bidirectional

from kvsim.report import numbers

_LONGEST = 60
_TURNS = ("R", "AL", "AN", "RLE", "RLO", "LRE", "LRO", "RLI", "LRI", "FSI", "PDF", "PDI")


def named(text: str) -> str:
    """A name on one line, cut to sixty characters. If it contains signs that change the writing
    direction, it is wrapped in Unicode's isolate.
    """
    line = " ".join(text.split())
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"
    if not any(bidirectional(sign) in _TURNS for sign in line):
        return line
    return f"\N{FIRST STRONG ISOLATE}{line}\N{POP DIRECTIONAL ISOLATE}"


def called(label: str) -> str:
    """A label for use in a sentence; in quotes if it contains spaces or unusual characters."""
    if re.fullmatch(r"[\w.+=/-]{1,60}", label):
        return named(label)
    return f"\N{LEFT DOUBLE QUOTATION MARK}{named(label)}\N{RIGHT DOUBLE QUOTATION MARK}"


def listed(labels: Sequence[str]) -> str:
    """Labels as a list in a sentence; of more than four, the first three and the number of the
    others.
    """
    if len(labels) <= 4:
        return numbers.listed(labels)
    return f"{', '.join(labels[:3])} and {len(labels) - 3} more"
