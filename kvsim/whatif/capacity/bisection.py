"""Bisection as a generator: it yields a value to try and is sent whether the value meets the
objectives.

Several searches may run concurrently, each waiting for its own run.
"""

import math
from collections.abc import Callable, Generator
from typing import NamedTuple

Asking = Generator[float, bool, "Bracket"]


class Bracket(NamedTuple):
    """The two values next to the edge. kept: the nearest value that met the objectives. lost: the
    nearest that did not. None: no such value up to the bounds.
    """

    kept: float | None
    lost: float | None


class Bounds(NamedTuple):
    """The values to try, from `start`, with least <= value <= most. largest: whether to search the
    largest value that meets the objectives (a rate) or the smallest (a pool). whole: only integers.
    tolerance: relative width at which a bracket is narrow enough; for integers at least 1.
    """

    start: float
    least: float
    most: float
    largest: bool
    whole: bool
    tolerance: float


def bisect(bounds: Bounds) -> Asking:
    """Double or halve from the start until one value meets the objectives and one does not, then
    bisect the logarithm.
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
    """Run one search to its end. kept: whether a value meets the objectives."""
    value = next(asking)
    while True:
        try:
            value = asking.send(kept(value))
        except StopIteration as end:
            bracket: Bracket = end.value
            return bracket


def _between(one: float, other: float, bounds: Bounds) -> float | None:
    """The next value to try; None if the bracket is narrow enough."""
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
