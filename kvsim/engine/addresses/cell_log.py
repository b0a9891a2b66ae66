"""Where cells lie: which sequence holds each, or held it last, buffer after buffer; the cells of
window layers lie behind those of the others.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from kvsim.memory.cells.cache import CellCache
from kvsim.memory.cells.plan import CellPlan
from kvsim.results.addresses import HELD, KEPT, Addresses
from kvsim.sequence import Sequence

Stay = tuple[int, str, int]  # start, owner, held or cached


@runtime_checkable
class InCells(Protocol):
    """An allocator over a field of cells. numbers: numbers of the running sequences."""

    cells: CellCache
    plan: CellPlan
    numbers: dict[Sequence, int]


class CellRecorder:
    """Compares the cells of every buffer with those of the last sample. A shared cell is recorded
    for one of its sequences.
    """

    def __init__(self, allocator: InCells, addresses: Addresses) -> None:
        self._allocator = allocator
        self._addresses = addresses
        self._stays: dict[int, Stay] = {}  # by address
        self._owners: dict[int, str] = {}  # last owner by number

    def sample(self, running: Iterable[Sequence], now_ps: int) -> None:
        running_numbers = {}
        for seq, number in self._allocator.numbers.items():
            running_numbers[number] = self._owners[number] = seq.id
        now: dict[int, tuple[str, int]] = {}
        for number, addresses in self._held():
            kind = HELD if number in running_numbers else KEPT
            owner = self._owners.get(number, "")
            for address in addresses:
                if kind == HELD or address not in now:
                    now[address] = owner, kind
        stays = self._stays
        for address in [at for at, (_, *what) in stays.items() if now.get(at) != tuple(what)]:
            self._end(address, now_ps)
        for address, what in now.items():
            if address not in stays:
                stays[address] = (now_ps, *what)

    def close(self, now_ps: int) -> None:
        for address in list(self._stays):
            self._end(address, now_ps)

    def _held(self) -> Iterator[tuple[int, list[int]]]:
        """(number, addresses of its cells), for each buffer that it has cells in."""
        plan, start = self._allocator.plan, 0
        sizes = plan.token_bytes, plan.window_bytes
        for cache, size in zip(self._allocator.cells.caches, sizes, strict=False):
            for field in cache.fields:
                for number, cells in field.held.items():
                    yield number, [start + cell * size for cell in cells]
                start += field.size * size

    def _end(self, address: int, now_ps: int) -> None:
        since_ps, owner, kind = self._stays.pop(address)
        plan = self._allocator.plan
        behind = plan.buffers * plan.cells * plan.token_bytes
        size = plan.token_bytes if address < behind else plan.window_bytes
        self._addresses.lay(address, size, since_ps, now_ps, owner, kind)
