"""The ledger: the use of every byte of the pool, in ten classes that sum to its capacity.

For a live allocation let n be its valid slots and q the slots its policy asked for. Let g be the
slots it was granted and F the slots it will hold at its end:

    used             distinct slots that hold valid KV of live requests
    reserved         max(0, min(q, F) - n): asked for, not written yet, will be
    overprovisioned  max(0, q - max(n, F)): asked for, will never be written; and slots outside
                     their window where every layer stores them (see left_behind.py)
    rounding         g - q
    cached           unreferenced blocks that may still be hit; allocatable
    transient        an old buffer while its grown successor is being filled
    metadata         what no request can ever have: null block, tables, the pool's odd end
    external         free, enough for the head of the queue, and no place for it
    short            free, and with the cached blocks still not enough for the head of the queue
    idle             free, the rest

parts.py has the parts of these classes that are reported by name.

The change of the ledger in a run of steps has a closed form. Every byte that leaves a class enters
another. So a change is a list of moves, counted in blocks or slots of equal size in bytes. At step
t (1 <= t <= steps) slope * t of them have moved from one class to the other. The jumps J_i of steps
t_i <= t are added. The jumps are kept as three sums, which is all that integrals over steps
(weights 1) and over time (durations affine in t) need:

    jumps = sum J_i    first = sum J_i * t_i    second = sum J_i * t_i * (t_i - 1) / 2
"""

from typing import Final, NamedTuple

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
    """Build a `Usage` from bytes for each class, in order. Faster than the constructor of a named
    tuple, which is interpreted even in compiled modules.
    """
    return tuple.__new__(Usage, values)


def allocated(usage: Usage) -> int:
    """`usage.allocated`, compiled with this module."""
    return usage.used + usage.reserved + usage.overprovisioned + usage.rounding + usage.transient


CLASSES: tuple[str, ...] = Usage._fields
# Indices of classes that bytes pass between while sequences decode.
USED: Final = 0
RESERVED: Final = 1
OVERPROVISIONED: Final = 2
ROUNDING: Final = 3
CACHED: Final = 4
EXTERNAL: Final = 7
SHORT: Final = 8
IDLE: Final = 9


def free_class(base: Usage) -> int:
    """The class (external, short or idle) in which `base` counts its free bytes."""
    if base.idle or not (base.short or base.external):
        return IDLE
    return SHORT if base.short else EXTERNAL


def file_free(usage: Usage, base: Usage) -> Usage:
    """A copy of `usage` with its idle bytes moved to the class in which `base` counts free
    bytes.
    """
    free = free_class(base)
    if not usage.idle or free == IDLE:
        return usage
    return usage._replace(**{CLASSES[free]: usage.idle, "idle": 0})


def split_free(free: int, cached: int, need: int | None, placeable: bool) -> tuple[int, int, int]:
    """Free bytes as (external, short, idle). need: bytes that the head of the queue needs, None
    without a head. placeable: whether an allocation of `need` bytes finds a place; only read if the
    bytes suffice.
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


# (class that loses, class that gains, bytes of what is counted, slope, jumps, first, second)
Move = tuple[int, int, int, int, int, int, int]


class Course(NamedTuple):
    """The change of the ledger during `advance(steps)`.

    Free bytes are counted under `idle`; `filed` (below) moves these to their class.

    used_rise, allocated_rise: how far the used and the allocated bytes rose above their value at
    the start, at most; 0 if they never exceeded the end value. parts: changes of the named parts
    (see parts.py) that changed.
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
    """Build a `Course`. Faster than the constructor of a named tuple, which is interpreted even in
    compiled modules.
    """
    return tuple.__new__(Course, (moves, used_rise, allocated_rise, parts))


def steady(source: int, target: int, unit_bytes: int, slope: int) -> tuple[Move, ...]:
    """A move of `slope` units of unit_bytes in each step from class `source` to class `target`."""
    return ((source, target, unit_bytes, slope, 0, 0, 0),) if slope else ()


def filling(token_bytes: int, slope: int) -> tuple[Move, ...]:
    """A move of `slope` slots of token_bytes in each step from reserved to used."""
    return steady(RESERVED, USED, token_bytes, slope)


class Jumps:
    """Changes of one quantity at single steps of `advance`.

    Changes are summed over the steps t with the weights 1, t and t * (t - 1) / 2, as in a `Course`.

    value: the last value passed to `read`; unused by callers of `add`, which pass differences.
    """

    __slots__ = ("first", "second", "total", "value")

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self.total = self.first = self.second = 0

    def add(self, gain: int, t: int) -> None:
        """Add a change of `gain` at step t."""
        self.total += gain
        self.first += gain * t
        self.second += gain * (t * (t - 1) // 2)

    def read(self, value: int, t: int) -> None:
        """Record that the quantity is `value` after step t."""
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
        """A ledger move of the quantity from class `source` to class `target`; empty if unchanged.
        unit_bytes: bytes of one counted unit.
        """
        if not self.moved:
            return ()
        return ((source, target, unit_bytes, 0, self.total, self.first, self.second),)

    def part(self, part: int, unit_bytes: int = 1) -> tuple[PartMove, ...]:
        """The change of a part of the ledger that is the quantity times `unit_bytes`; empty if
        unchanged. part: index in parts.py.
        """
        if not self.moved:
            return ()
        sums = self.total * unit_bytes, self.first * unit_bytes, self.second * unit_bytes
        return ((part, *sums),)


class LedgerJumps:
    """The changes of all classes of a ledger that is read after each step of one `advance`."""

    def __init__(self, usage: Usage) -> None:
        self._classes = [Jumps(held) for held in usage]

    def read(self, usage: Usage, t: int) -> None:
        """Record that the ledger is `usage` after step t."""
        for jumps, held in zip(self._classes, usage, strict=True):
            jumps.read(held, t)

    def course(
        self, used_rise: int = 0, allocated_rise: int = 0, parts: tuple[PartMove, ...] = ()
    ) -> Course:
        """The change of the ledger; rises and parts as in `Course`. Every change is expressed as a
        move from or to idle, as the classes sum to the capacity.
        """
        gained = [self._classes[at].move(IDLE, at) for at in range(len(CLASSES)) if at != IDLE]
        return course_of(sum(gained, ()), used_rise, allocated_rise, parts)


def filed(course: Course, base: Usage) -> Course:
    """A copy of `course` with its free bytes in the class (idle, short or external) that holds them
    in `base`, the ledger at its start.
    """
    free = free_class(base)
    if free == IDLE:
        return course
    moves = tuple(
        (free if each[0] == IDLE else each[0], free if each[1] == IDLE else each[1], *each[2:])
        for each in course.moves
    )
    return course._replace(moves=moves)
