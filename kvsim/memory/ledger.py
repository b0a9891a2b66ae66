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

parts.py has the parts of these classes that are reported by name, course.py the change of the
ledger in a run of steps.
"""

from typing import Final, NamedTuple

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
    """The class that the free bytes of `base` are in."""
    if base.idle or not (base.short or base.external):
        return IDLE
    return SHORT if base.short else EXTERNAL


def file_free(usage: Usage, base: Usage) -> Usage:
    """`usage` with its idle bytes in the class of free bytes that `base` has."""
    free = free_class(base)
    if not usage.idle or free == IDLE:
        return usage
    return usage._replace(**{CLASSES[free]: usage.idle, "idle": 0})


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
