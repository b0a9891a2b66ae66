"""Records which sequence owns each llama.cpp KV cell, or owned it last, one buffer after another.

Cells of window layers are numbered after those of the other layers.

A sample looks at the cells that were touched since the last one, and at those of sequences that
began or ended meanwhile. Intervals that ended are recorded together, as arrays.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kvsim.memory.cells.cache import CellCache
from kvsim.memory.cells.field import CellField
from kvsim.memory.cells.plan import CellPlan
from kvsim.results.addresses import ADDRESS_COLUMNS, HELD, KEPT, Addresses
from kvsim.sequence import Sequence

NOBODY = -1  # the stay of an empty cell; else 2 * the place of its owner's name, + KEPT


@runtime_checkable
class InCells(Protocol):
    """An allocator that gives sequences single cells. numbers: llama.cpp's number of each running
    sequence.
    """

    cells: CellCache
    plan: CellPlan
    numbers: dict[Sequence, int]


class CellRecorder:
    """Compares touched cells with the last sample, and records the interval of each cell that
    changed.

    A shared cell is recorded for one of its sequences. Adjacent cells with equal intervals are one
    region.
    """

    def __init__(self, allocator: InCells, addresses: Addresses) -> None:
        self._allocator = allocator
        self._addresses = addresses
        self._bytes = allocator.plan.token_bytes
        self._names = [""]  # owners, by place
        self._places: dict[str, int] = {"": 0}
        self._owners: dict[int, int] = {}  # place of the last owner, by number
        self._running: dict[int, int] = {}  # place of each running owner, by its number
        plan = allocator.plan
        sizes = [
            np.full(field.size, size)
            for cache, size in zip(
                allocator.cells.caches, (plan.token_bytes, plan.window_bytes), strict=False
            )
            for field in cache.fields
        ]
        # Of each cell, buffer after buffer.
        self._sizes = np.concatenate(sizes)
        self._address = np.cumsum(self._sizes) - self._sizes
        self._buffer = np.arange(len(sizes)).repeat([len(each) for each in sizes])
        self._stay = np.full(len(self._sizes), NOBODY)
        self._since = np.zeros(len(self._sizes), dtype=np.int64)

    def sample(self, running: Iterable[Sequence], now_ps: int) -> None:
        numbers = {}
        for seq, number in self._allocator.numbers.items():
            numbers[number] = self._owners[number] = self._place(seq.id)
        turned = {number for number, _ in numbers.items() ^ self._running.items()}
        self._running = numbers
        start = 0
        cells: list[int] = []
        stays: list[int] = []
        for field in self._fields():
            touched = field.touched
            if touched is None:  # the first sample
                touched = field.touched = set(range(field.size))
            for number in turned:
                touched.update(field.held.get(number, ()))
            if touched:
                self._look(field, sorted(touched), start, cells, stays)
                touched.clear()
            start += field.size
        at, now = np.array(cells, dtype=np.int64), np.array(stays, dtype=np.int64)
        changed = now != self._stay[at]
        if changed.any():
            at, now = at[changed], now[changed]
            self._end(at, now_ps)
            self._stay[at], self._since[at] = now, now_ps

    def close(self, now_ps: int) -> None:
        for field in self._fields():
            field.touched = None
        self._end(np.arange(len(self._stay)), now_ps)
        self._stay[:] = NOBODY

    def _place(self, name: str) -> int:
        place = self._places.setdefault(name, len(self._names))
        if place == len(self._names):
            self._names.append(name)
        return place

    def _fields(self) -> Iterator[CellField]:
        for cache in self._allocator.cells.caches:
            yield from cache.fields

    def _look(
        self, field: CellField, at: list[int], start: int, cells: list[int], stays: list[int]
    ) -> None:
        """Append the cells `at` of one buffer to `cells`, and the current owner of each to `stays`.

        start: cells in all earlier buffers; `cells` counts from the first buffer. Of several
        running owners the last counts; without a running one, the first.
        """
        owners, running = field.owners, self._running
        ranks = {number: rank for rank, number in enumerate(field.held)}
        stay_of = {
            number: 2 * self._owners.get(number, 0) + (HELD if number in running else KEPT)
            for number in ranks
        }
        for cell in at:
            own = owners[cell]
            if not own:
                stay = NOBODY
            elif len(own) == 1:
                stay = stay_of[own[0]]
            else:
                active = [number for number in own if number in running]
                one = (
                    max(active, key=ranks.__getitem__)
                    if active
                    else min(own, key=ranks.__getitem__)
                )
                stay = stay_of[one]
            stays.append(stay)
        cells += [start + cell for cell in at]

    def _end(self, cells: NDArray[np.int64], now_ps: int) -> None:
        """Record the intervals of `cells` (in rising order) that end at now_ps."""
        cells = cells[(self._stay[cells] != NOBODY) & (self._since[cells] < now_ps)]
        if not len(cells):
            return
        begins = np.ones(len(cells), dtype=np.bool_)
        begins[1:] = cells[1:] != cells[:-1] + 1
        for of_each in (self._buffer, self._stay, self._since):
            begins[1:] |= of_each[cells[1:]] != of_each[cells[:-1]]
        (heads,) = begins.nonzero()
        first = cells[heads]
        places, kinds = np.divmod(self._stay[first], 2)
        names, at = np.unique(places, return_inverse=True)
        rows = np.empty((len(heads), len(ADDRESS_COLUMNS)), dtype=np.int64)
        rows[:, 0] = self._address[first]
        rows[:, 1] = np.add.reduceat(self._sizes[cells], heads)
        rows[:, 2], rows[:, 3] = self._since[first], now_ps
        rows[:, 4] = np.array([self._addresses.index(self._names[each]) for each in names])[at]
        rows[:, 5] = kinds
        self._addresses.lay_rows(rows)
