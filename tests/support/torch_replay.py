"""Replay an allocate/free sequence on torch's simulated caching allocator, to hold it against a
real one.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from kvsim.interchange.torch_snapshot.reader import SnapshotEntry
from kvsim.memory.arena.torch_arena import TorchArena
from kvsim.plumbing.errors import InputError


class Operation(NamedTuple):
    """Allocate `size` bytes under a key that is not live, or free what lives under a key."""

    action: Literal["alloc", "free"]
    key: int
    size: int = 0


class Levels(NamedTuple):
    """The allocator after an operation, in bytes; reserved is what the device has given."""

    requested: int
    allocated: int
    reserved: int


def replay(operations: Iterable[Operation], arena: TorchArena) -> Iterator[Levels]:
    """The levels after each operation, on an arena that starts as it is.

    Raises InputError where a request has no place, a key is live already, or is not.
    """
    live: dict[int, tuple[int, int]] = {}  # key: address, bytes asked for
    requested = 0
    allocated = sum(size for _, size in arena.live())
    for number, operation in enumerate(operations):
        where = f"operation {number}"
        if operation.action == "alloc":
            if operation.key in live:
                raise InputError("allocates what lives already", where=where, value=operation.key)
            placed = arena.allocate(operation.size)
            if placed is None:
                raise InputError(
                    "out of memory",
                    where=where,
                    value=f"{operation.size:,} bytes",
                    limit=f"{arena.largest_hole:,} bytes",
                    remedy="replay on a larger device",
                )
            live[operation.key] = (placed.address, operation.size)
            requested += operation.size
            allocated += placed.granted
        else:
            if operation.key not in live:
                raise InputError("frees what does not live", where=where, value=operation.key)
            address, size = live.pop(operation.key)
            requested -= size
            allocated -= arena.granted(address)
            arena.free(address)
        yield Levels(requested, allocated, arena.reserved_bytes)


def operations_of(trace: Sequence[SnapshotEntry]) -> list[Operation]:
    """The allocations and frees of a recorded trace that began with nothing live; frees of what it
    did not see allocated are left out.
    """
    operations: list[Operation] = []
    live: set[int] = set()
    for entry in trace:
        if entry.addr is None:
            continue
        if entry.action == "alloc":
            live.add(entry.addr)
            operations.append(Operation("alloc", entry.addr, entry.size))
        elif entry.action == "free_completed" and entry.addr in live:
            live.remove(entry.addr)
            operations.append(Operation("free", entry.addr))
    return operations
