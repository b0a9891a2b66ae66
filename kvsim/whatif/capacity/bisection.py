"""Bisection as a generator: it yields a value to try and is sent whether the value meets the
objectives.

Several searches may run concurrently, each waiting for its own run.
"""

import math
from collections.abc import Callable, Generator
from typing import NamedTuple

Asking = Generator[float, bool, "Bracket"]


class Bracket(NamedTuple):
    """The two values next to the edge. kept: the nearest that was kept. lost: the nearest that was
    not. None: no value down or up to the bounds was.
    """

    kept: float | None
    lost: float | None


class Bounds(NamedTuple):
    """The values to try, from `start`, with least <= value <= most. largest: whether the largest
    kept value is looked for (a rate) or the smallest (a pool). whole: whole numbers only.
    tolerance: the relative width at which a bracket is narrow enough, for whole numbers a width of
    1 at least.
    """

    start: float
    least: float
    most: float
    largest: bool
    whole: bool
    tolerance: float


def bisect(bounds: Bounds) -> Asking:
    """Double or halve from the start until one value is kept and one is not, then halve the
    logarithm of the distance between them.
    """
    value = min(max(bounds.start, bounds.least), bounds.most)
    value = float(round(value)) if bounds.whole else value
    good = bad = None
    while good is None or bad is None:
        if (yield value):
            good = value
        else:
            bad = value
        if good is None or bad is None:
            up = (bad is None) == bounds.largest
            edge = bounds.most if up else bounds.least
            if value == edge:
                return Bracket(good, bad)
            value = min(value * 2, edge) if up else max(value / 2, edge)
            value = float(round(value)) if bounds.whole else value
    while (middle := _between(good, bad, bounds)) is not None:
        if (yield middle):
            good = middle
        else:
            bad = middle
    return Bracket(good, bad)


def answered(asking: Asking, kept: Callable[[float], bool]) -> Bracket:
    """One search carried to its end by itself."""
    value = next(asking)
    while True:
        try:
            value = asking.send(kept(value))
        except StopIteration as end:
            bracket: Bracket = end.value
            return bracket


def _between(one: float, other: float, bounds: Bounds) -> float | None:
    """The next value to try; None where the bracket is narrow enough."""
    low, high = sorted((one, other))
    if high <= low * (1 + bounds.tolerance):
        return None
    middle = math.sqrt(low * high)
    if bounds.whole:
        middle = float(round(middle))
        if middle in (low, high):
            middle = low + 1
        if middle >= high:
            return None
    return middle
