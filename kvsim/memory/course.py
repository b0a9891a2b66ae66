"""The change of the ledger in a run of steps, in closed form.

Every byte that leaves a class enters another, so a change is a list of moves, counted in blocks or
slots of so many bytes. At step t (1 <= t <= steps) slope * t of them have moved from one class to
the other, and the jumps J_i of steps t_i <= t. The jumps are kept as three sums, which is all that
integrals over steps (weights 1) and over time (durations affine in t) need:

    jumps = sum J_i    first = sum J_i * t_i    second = sum J_i * t_i * (t_i - 1) / 2
"""

from typing import NamedTuple

from kvsim.memory.ledger import CLASSES, IDLE, RESERVED, USED, Usage, free_class
from kvsim.memory.parts import PartMove

# (class that loses, class that gains, bytes of what is counted, slope, jumps, first, second)
Move = tuple[int, int, int, int, int, int, int]


class Course(NamedTuple):
    """The change of the ledger during `advance(steps)`.

    Free bytes are booked under `idle`; `filed` (below) moves them to the class they are in.

    used_rise, allocated_rise: highest rise of used and of allocated bytes above their start on the
    way, if it is above that at the end. parts: changes of the named parts (see parts.py) that
    changed.
    """

    moves: tuple[Move, ...] = ()
    used_rise: int = 0
    allocated_rise: int = 0
    parts: tuple[PartMove, ...] = ()


def course_of(
    moves: tuple[Move, ...],
    used_rise: int = 0,
    allocated_rise: int = 0,
    parts: tuple[PartMove, ...] = (),
) -> Course:
    """A `Course`. Faster than the constructor of a named tuple, which is interpreted even in
    compiled modules.
    """
    return tuple.__new__(Course, (moves, used_rise, allocated_rise, parts))


def steady(source: int, target: int, unit_bytes: int, slope: int) -> tuple[Move, ...]:
    """In each step `slope` units move from one class to another."""
    return ((source, target, unit_bytes, slope, 0, 0, 0),) if slope else ()


def filling(token_bytes: int, slope: int) -> tuple[Move, ...]:
    """In each step `slope` reserved slots become used."""
    return steady(RESERVED, USED, token_bytes, slope)


class Jumps:
    """Gains of one quantity during `advance`, summed over the steps t with the weights 1, t and t *
    (t - 1) / 2, as a `Course` keeps them.

    value: the last value, for callers of `read`, which takes values instead of gains.
    """

    __slots__ = ("first", "second", "total", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.total = self.first = self.second = 0

    def add(self, gain: int, t: int) -> None:
        """Add a gain at step t."""
        self.total += gain
        self.first += gain * t
        self.second += gain * (t * (t - 1) // 2)

    def read(self, value: int, t: int) -> None:
        """The quantity is `value` after step t."""
        if value != self.value:
            self.add(value - self.value, t)
            self.value = value

    def repeat(self, gain: int, t: int, period: int, times: int) -> None:
        """Add `gain` at each of the `times` steps t, t + period, ..."""
        pairs = times * (times - 1) // 2
        squares = (times - 1) * times * (2 * times - 1) // 6
        # sum of (t + period * i) * (t + period * i - 1)
        twice = times * t * (t - 1) + period * (2 * t - 1) * pairs + period * period * squares
        self.total += gain * times
        self.first += gain * (times * t + period * pairs)
        self.second += gain * (twice // 2)

    @property
    def moved(self) -> bool:
        """Whether the quantity changed."""
        return self.total != 0 or self.first != 0 or self.second != 0

    def move(self, source: int, target: int, unit_bytes: int = 1) -> tuple[Move, ...]:
        """The quantity moves from one class to another; empty if it did not change. unit_bytes:
        of one that is counted.
        """
        if not self.moved:
            return ()
        return ((source, target, unit_bytes, 0, self.total, self.first, self.second),)

    def part(self, part: int, unit_bytes: int = 1) -> tuple[PartMove, ...]:
        """The change of a part of the ledger that is the quantity times `unit_bytes`; empty if it
        did not change. part: its index in parts.py.
        """
        if not self.moved:
            return ()
        sums = self.total * unit_bytes, self.first * unit_bytes, self.second * unit_bytes
        return ((part, *sums),)


class LedgerJumps:
    """The jumps of all classes of a ledger that is read after each step of one `advance`."""

    def __init__(self, usage: Usage) -> None:
        self._classes = [Jumps(held) for held in usage]

    def read(self, usage: Usage, t: int) -> None:
        """The ledger is `usage` after step t."""
        for jumps, held in zip(self._classes, usage, strict=True):
            jumps.read(held, t)

    def course(
        self, used_rise: int = 0, allocated_rise: int = 0, parts: tuple[PartMove, ...] = ()
    ) -> Course:
        """The change of the ledger; rises and parts as in `Course`. What a class gains was idle, as
        the classes sum to the capacity.
        """
        gained = [self._classes[at].move(IDLE, at) for at in range(len(CLASSES)) if at != IDLE]
        return course_of(sum(gained, ()), used_rise, allocated_rise, parts)


def filed(course: Course, base: Usage) -> Course:
    """`course` with its free bytes in the class that has them in `base`, the ledger at its
    start.
    """
    free = free_class(base)
    if free == IDLE:
        return course
    moves = tuple(
        (free if each[0] == IDLE else each[0], free if each[1] == IDLE else each[1], *each[2:])
        for each in course.moves
    )
    return course._replace(moves=moves)
