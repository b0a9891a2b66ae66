"""The ledger: what every byte of the pool is doing, in ten classes that sum to its capacity.

For a live allocation let n be its valid slots, q the slots its policy asked for, g the slots it was
granted and F the slots it will hold at its end:

    used             distinct slots that hold valid KV of live requests
    reserved         max(0, min(q, F) - n): asked for, not written yet, will be
    overprovisioned  max(0, q - max(n, F)): asked for, will never be written; and slots that windows
                     have left behind where every layer keeps them (see left_behind.py)
    rounding         g - q
    cached           unreferenced blocks whose content may still be hit; allocatable
    transient        an old buffer while its grown successor is being filled
    metadata         what no request can ever have: null block, tables, the pool's odd end
    external         free, enough for the head of the queue, and no place for it
    short            free, and with the cached blocks still not enough for the head of the queue
    idle             free, the rest

Parts of these classes that are told by themselves stand in parts.py.
"""

from typing import NamedTuple

from kvsim.memory.parts import PartMove
from kvsim.plumbing.errors import InvariantError


class Usage(NamedTuple):
    """The ledger at one instant, in bytes."""

    used: int = 0
    reserved: int = 0
    overprovisioned: int = 0
    rounding: int = 0
    cached: int = 0
    transient: int = 0
    metadata: int = 0
    external: int = 0
    short: int = 0
    idle: int = 0

    @property
    def allocated(self) -> int:
        """What live requests hold, whatever they do with it."""
        return allocated(self)


def usage_of(values: tuple[int, ...]) -> Usage:
    """The ledger of these bytes, one a class in their order, for where many are made: a named
    tuple's own constructor is interpreted, whatever is compiled.
    """
    return tuple.__new__(Usage, values)


def allocated(usage: Usage) -> int:
    """Its property of that name, compiled where this module is."""
    return usage.used + usage.reserved + usage.overprovisioned + usage.rounding + usage.transient


def filling(num_bytes: int) -> Usage:
    """How the ledger moves where so many reserved bytes become used ones."""
    return usage_of((num_bytes, -num_bytes, 0, 0, 0, 0, 0, 0, 0, 0))


CLASSES: tuple[str, ...] = Usage._fields
NOTHING = Usage()


class Course(NamedTuple):
    """How the ledger moved during `advance(steps)`, compactly.

    At step t (1 <= t <= steps) each class stands at its value before, plus slope * t, plus the
    jumps J_i that happened at steps t_i <= t. The jumps are kept as three sums per class, which is
    all that integrals over steps (weights 1) and over time (durations affine in t) need:

        jumps = sum J_i    first = sum J_i * t_i    second = sum J_i * t_i * (t_i - 1) / 2

    Free bytes are booked under `idle`; `filed` (below) moves them to the class they are in.

    used_rise, allocated_rise: how far used bytes, and all that somebody holds, rose above the
    beginning on the way, where that is more than at the end. parts: how those of the classes that
    have names of their own moved (see parts.py), as far as any did.
    """

    slope: Usage
    jumps: Usage = NOTHING
    first: Usage = NOTHING
    second: Usage = NOTHING
    used_rise: int = 0
    allocated_rise: int = 0
    parts: tuple[PartMove, ...] = ()


def course_of(
    slope: Usage,
    jumps: Usage,
    first: Usage,
    second: Usage,
    used_rise: int = 0,
    allocated_rise: int = 0,
    parts: tuple[PartMove, ...] = (),
) -> Course:
    """A course, made as `usage_of` makes a ledger."""
    return tuple.__new__(Course, (slope, jumps, first, second, used_rise, allocated_rise, parts))


class Jumps:
    """What one quantity gained during `advance`, summed over the steps t in which it did with
    weights 1, t and t * (t - 1) / 2: all that a `Course` keeps.

    value: the quantity as it was last read, for who says what it is and not what it gains.
    """

    __slots__ = ("first", "second", "total", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.total = self.first = self.second = 0

    def add(self, gain: int, t: int) -> None:
        """It gains `gain` at step t."""
        self.total += gain
        self.first += gain * t
        self.second += gain * (t * (t - 1) // 2)

    def read(self, value: int, t: int) -> None:
        """After step t it is `value`."""
        if value != self.value:
            self.add(value - self.value, t)
            self.value = value

    def repeat(self, gain: int, t: int, period: int, times: int) -> None:
        """It gains `gain` at each of the steps t, t + period, ..., `times` of them."""
        pairs = times * (times - 1) // 2
        squares = (times - 1) * times * (2 * times - 1) // 6
        # sum of (t + period * i) * (t + period * i - 1)
        twice = times * t * (t - 1) + period * (2 * t - 1) * pairs + period * period * squares
        self.total += gain * times
        self.first += gain * (times * t + period * pairs)
        self.second += gain * (twice // 2)

    @property
    def moved(self) -> bool:
        """Whether it gained or lost anything."""
        return self.total != 0 or self.first != 0 or self.second != 0

    def part(self, part: int, unit_bytes: int = 1) -> tuple[PartMove, ...]:
        """How a part of the ledger moved that is `unit_bytes` of the quantity; nothing if it did
        not.

        part: its place in parts.py.
        """
        if not self.moved:
            return ()
        sums = self.total * unit_bytes, self.first * unit_bytes, self.second * unit_bytes
        return ((part, *sums),)


class LedgerJumps:
    """The jumps of every class of a ledger that is read after each step of one `advance`."""

    def __init__(self, usage: Usage) -> None:
        self._classes = [Jumps(held) for held in usage]

    def read(self, usage: Usage, t: int) -> None:
        """After step t the ledger is this."""
        for jumps, held in zip(self._classes, usage, strict=True):
            jumps.read(held, t)

    def course(
        self, used_rise: int = 0, allocated_rise: int = 0, parts: tuple[PartMove, ...] = ()
    ) -> Course:
        """How the ledger moved; the rises and the parts as in `Course`."""
        return course_of(
            NOTHING,
            Usage(*(jumps.total for jumps in self._classes)),
            Usage(*(jumps.first for jumps in self._classes)),
            Usage(*(jumps.second for jumps in self._classes)),
            used_rise,
            allocated_rise,
            parts,
        )


def filed(course: Course, base: Usage) -> Course:
    """The same with free bytes in the class that holds them in `base`, where it began."""
    if base.idle or not (base.short or base.external):
        return course
    return course._replace(
        slope=file_free(course.slope, base),
        jumps=file_free(course.jumps, base),
        first=file_free(course.first, base),
        second=file_free(course.second, base),
    )


def file_free(usage: Usage, base: Usage) -> Usage:
    """`usage`, its idle bytes moved to the class of free bytes that `base` has."""
    if not usage.idle or base.idle or not (base.short or base.external):
        return usage
    return usage._replace(**{"short" if base.short else "external": usage.idle, "idle": 0})


def split_free(free: int, cached: int, need: int | None, placeable: bool) -> tuple[int, int, int]:
    """Free bytes as (external, short, idle), by what the head of the queue needs (None: no head).

    placeable: whether the need has a place somewhere; asked only where the bytes would do.
    """
    if need is None:
        return 0, 0, free
    if free + cached < need:
        return 0, free, 0
    if not placeable:
        return free, 0, 0
    return 0, 0, free


def check_sum(usage: Usage, capacity_bytes: int) -> None:
    """Raise InvariantError unless the classes are all >= 0 and sum to the capacity."""
    total = 0
    for held in usage:  # of what is asked most often: sum() and min() are not compiled
        if held < 0:
            total = -1
            break
        total += held
    if total != capacity_bytes:
        raise InvariantError(
            f"ledger sums to {sum(usage)} of {capacity_bytes} bytes: {usage._asdict()}"
        )
