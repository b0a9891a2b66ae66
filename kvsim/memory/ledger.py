"""The ledger: the use of every byte of the pool, in ten classes that sum to its capacity.

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

parts.py has the parts of these classes that are reported by name.
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
        """Bytes that live requests hold, used or not."""
        return allocated(self)


def usage_of(values: tuple[int, ...]) -> Usage:
    """The ledger with these bytes, one value a class, in order. Faster than the constructor of a
    named tuple, which is interpreted even in compiled modules.
    """
    return tuple.__new__(Usage, values)


def allocated(usage: Usage) -> int:
    """`usage.allocated`, compiled with this module."""
    return usage.used + usage.reserved + usage.overprovisioned + usage.rounding + usage.transient


def filling(num_bytes: int) -> Usage:
    """The change of the ledger if `num_bytes` reserved bytes become used."""
    return usage_of((num_bytes, -num_bytes, 0, 0, 0, 0, 0, 0, 0, 0))


CLASSES: tuple[str, ...] = Usage._fields
NOTHING = Usage()


class Course(NamedTuple):
    """The change of the ledger during `advance(steps)`, in closed form.

    At step t (1 <= t <= steps) each class stands at its value before, plus slope * t, plus the
    jumps J_i that happened at steps t_i <= t. The jumps are kept as three sums per class, which is
    all that integrals over steps (weights 1) and over time (durations affine in t) need:

        jumps = sum J_i    first = sum J_i * t_i    second = sum J_i * t_i * (t_i - 1) / 2

    Free bytes are booked under `idle`; `filed` (below) moves them to the class they are in.

    used_rise, allocated_rise: highest rise of used and of allocated bytes above their start on the
    way, if it is above that at the end. parts: changes of the named parts (see parts.py) that
    changed.
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
    """A `Course`, faster than by its constructor: see `usage_of`."""
    return tuple.__new__(Course, (slope, jumps, first, second, used_rise, allocated_rise, parts))


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
        """The change of the ledger; rises and parts as in `Course`."""
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
    """`course` with its free bytes in the class that has them in `base`, the ledger at its
    start.
    """
    if base.idle or not (base.short or base.external):
        return course
    return course._replace(
        slope=file_free(course.slope, base),
        jumps=file_free(course.jumps, base),
        first=file_free(course.first, base),
        second=file_free(course.second, base),
    )


def file_free(usage: Usage, base: Usage) -> Usage:
    """`usage` with its idle bytes in the class of free bytes that `base` has."""
    if not usage.idle or base.idle or not (base.short or base.external):
        return usage
    return usage._replace(**{"short" if base.short else "external": usage.idle, "idle": 0})


def split_free(free: int, cached: int, need: int | None, placeable: bool) -> tuple[int, int, int]:
    """Free bytes as (external, short, idle). need: bytes that the head of the queue needs, None
    without a head. placeable: whether they have a place; only read if the bytes suffice.
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
