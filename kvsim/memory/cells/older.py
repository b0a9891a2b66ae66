"""The KV cache of llama.cpp before it used holes (7841fc723, March 2025).

A micro-batch needs neighbouring cells, and cells are defragmented between batches
(src/llama-kv-cache.cpp and llama-context.cpp).
"""

import struct
from collections.abc import Iterable, Sequence

from kvsim.memory.cells.batch import num_tokens, slices
from kvsim.memory.cells.cache import DONE, NO_ROOM, CellCache
from kvsim.memory.cells.field import CellField, TokenRun
from kvsim.memory.cells.layer_cache import Cache, LayerCost

MOST_SEQUENCES = 256
PADDING = 32  # cells: what attention reads is rounded up to these
LEAST_READ = 2048  # cells: nothing moves where fewer are read
GRAPH_NODES = 8192  # of the graph that moves cells; each move takes six a layer


class ContiguousField(CellField):
    """One buffer for all sequences. pending: shifts of positions not yet applied to the content."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.pending: dict[int, int] = {}

    def find(self, num: int) -> list[int] | None:
        """The first `num` adjacent empty cells from the head on. A failed search moves the head to
        where the search ended.
        """
        size, owners = self.size, self.owners
        if self.head > self.used + 2 * num:
            self.head = 0
        if num > size:
            return None
        tested = 0
        while tested < size:
            if self.head + num > size:
                tested += size - self.head
                self.head = 0
                continue
            taken = next((at for at in range(num) if owners[self.head + at]), None)
            if taken is None:
                return list(range(self.head, self.head + num))
            self.head += taken + 1
            tested += taken + 1
        return None

    def place(self, cells: list[int], runs: Iterable[TokenRun]) -> None:
        super().place(cells, runs)
        if self.head >= self.size:
            self.head = 0

    def share(self, source: int, target: int, p0: int, p1: int) -> None:
        super().share(source, target, p0, p1)
        self.head = 0

    def shift(self, seq: int, p0: int, p1: int, delta: int) -> None:
        cells = self._within(seq, p0, p1)
        super().shift(seq, p0, p1, delta)
        for cell in cells:
            if self.owners[cell]:
                self.pending[cell] = self.pending.get(cell, 0) + delta

    def longest_free(self) -> tuple[int, int]:
        """(length, first cell) of the longest run of empty cells; first cell -1 if there is
        none.
        """
        longest, first, start = 0, -1, 0
        for cell in range(self.size + 1):
            if cell == self.size or self.owners[cell]:
                if cell - start > longest:
                    longest, first = cell - start, start
                start = cell + 1
        return longest, first

    def compact(self, most_moves: int) -> int:
        """Defragment: move used cells from the end into holes at the start, keeping order, for at
        most `most_moves` runs of cells.

        Returns the number of moved cells.
        """
        end, total, moves, moved = self.top, self.used, 0, 0
        hole = 0
        while hole < total and moves < most_moves:
            if self.owners[hole]:
                hole += 1
                continue
            width = 1
            while hole + width < total and not self.owners[hole + width]:
                width += 1
            sources: list[int] = []
            cell = end - 1
            while cell > hole and len(sources) < width:
                if self.owners[cell]:
                    sources.append(cell)
                cell -= 1
            sources.reverse()
            before = -2
            for target, source in enumerate(sources, hole):
                if source != before + 1:
                    if moves == most_moves:
                        break
                    moves += 1
                before = source
                owners, pos = self.owners[source], self.positions[source]
                self._put(source, (), 0)
                self._put(target, owners, pos)
                if source in self.pending:
                    self.pending[target] = self.pending.pop(source)
                moved += 1
            hole += width
        if moved:
            self.head = total
        return moved


class OlderCache(CellCache):
    """The cache of a whole model in one buffer for all sequences, with defragmentation.

    threshold: share of holes, among the cells that attention reads, above which cells are
    defragmented before the next batch; 0 or less: never. layers: number of layers with KV.
    """

    def __init__(self, size: int, micro_batch: int, layers: int, threshold: float = 0.0) -> None:
        self.field = ContiguousField(size)
        base = Cache(0, 1, LayerCost(layers, 0))
        base.fields = [self.field]
        super().__init__(MOST_SEQUENCES, micro_batch, base)
        self.moved_cells = 0
        self._most_moves = (GRAPH_NODES - 2 * layers) // (6 * layers)
        self._threshold = struct.unpack("f", struct.pack("f", threshold))[0]
        self._wants_compacting = False

    def request_compacting(self) -> None:
        """Schedule defragmentation for the next `update`."""
        self._wants_compacting = True

    def update(self) -> int:
        """Apply pending position shifts, then pending defragmentation. Returns the number of moved
        cells.
        """
        self.field.pending.clear()
        if not self._wants_compacting:
            return 0
        self._wants_compacting = False
        moved = self.field.compact(self._most_moves)
        self.moved_cells += moved
        return moved

    def fits(self, num: int) -> bool:
        """Whether a batch of `num` tokens would find room; pending operations are applied first."""
        self.update()
        field, head, taken = self.field, self.field.head, []
        for part in slices([TokenRun((0,), 0, num)], self._micro_batch):
            cells = field.find(num_tokens(part))
            if cells is None:
                break
            taken.append(field.snapshot(cells))
            if len(cells) < num:
                field.place(cells, [TokenRun((MOST_SEQUENCES,), 0, len(cells))])
        else:
            num = 0
        for cells_before in reversed(taken):
            field.put_back(cells_before, head)
        return num == 0

    def decode(self, runs: Sequence[TokenRun]) -> int:
        """Place a batch micro-batch by micro-batch: DONE, or NO_ROOM if one finds no room; the
        micro-batches placed before it stay.
        """
        field = self.field
        for part in slices(runs, self._micro_batch):
            self.update()
            cells = field.find(num_tokens(part))
            if cells is None:
                return NO_ROOM
            field.place(cells, part)
        if self._threshold > 0:
            self._wants_compacting |= self._fragmentation() > self._threshold
        return DONE

    def _fragmentation(self) -> float:
        """The share of holes among the cells that attention reads, as a 32-bit float."""
        read = min(self.field.size, -(-self.field.top // PADDING) * PADDING)
        if read < LEAST_READ:
            return 0.0
        full = struct.unpack("f", struct.pack("f", (self.field.used + PADDING) / read))[0]
        share: float = struct.unpack("f", struct.pack("f", 1.0 - full))[0]
        return max(0.0, share)

    def displayed(self) -> list[int]:
        """The position of each cell as llama.cpp's debug view prints it: pending shifts are counted
        twice.
        """
        pending = self.field.pending
        return [pos + pending.get(cell, 0) for cell, pos in enumerate(self.field.positions)]
