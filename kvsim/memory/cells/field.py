"""One buffer of llama.cpp's KV cache: an array of cells, each empty or holding one token of one or
more sequences.

As src/llama-kv-cache.cpp does it (0c1e57098). The March 2025 version, which needs neighbouring
cells, is in older.py.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterable
from typing import NamedTuple

from kvsim.plumbing.errors import InvariantError

OPEN = 1 << 60  # the end of a range of positions without an end


class TokenRun(NamedTuple):
    """Consecutive tokens of a batch: their sequences, the first position, and how many."""

    seqs: tuple[int, ...]
    pos: int
    num: int


class CellRun(NamedTuple):
    """Neighbouring cells of the same sequences, at positions pos, pos + 1, ..."""

    first: int
    num: int
    seqs: tuple[int, ...]
    pos: int


class HeldCells(NamedTuple):
    """A snapshot of cells. cells: (cell number, sequences, position) of each. last: highest
    position of each sequence.
    """

    cells: list[tuple[int, tuple[int, ...], int]]
    last: dict[int, int]


def open_range(p0: int, p1: int) -> tuple[int, int]:
    """The range of positions [p0, p1) with negative bounds replaced by 0 and the maximum."""
    return max(p0, 0), OPEN if p1 < 0 else p1


class CellField:
    """A buffer of `size` cells.

    window: a cell may be reused once its sequence is `window` tokens further; 0: no window. owners:
    the sequences of each cell, none for an empty one. positions: the token position of each cell.
    head: where the next search starts. held: the cells of each sequence. touched: cells changed
    since the recorder last emptied the set; None without a recorder.
    """

    def __init__(self, size: int, window: int = 0) -> None:
        self.size = size
        self.window = window
        self.owners: list[tuple[int, ...]] = [()] * size
        self.positions = [0] * size
        self.head = 0
        self.used = 0
        self.held: dict[int, set[int]] = {}
        self.touched: set[int] | None = None
        self._last: dict[int, int] = {}  # highest position of a sequence, where it is known

    # --- what is there ----------------------------------------------------------------------------

    def last_position(self, seq: int) -> int:
        """The highest position of a sequence, -1 if it has none."""
        last = self._last.get(seq)
        if last is None:
            positions = self.positions
            last = max((positions[cell] for cell in self.held.get(seq, ())), default=-1)
            self._last[seq] = last
        return last

    def first_position(self, seq: int) -> int:
        """The lowest position of a sequence, -1 if it has none."""
        positions = self.positions
        return min((positions[cell] for cell in self.held.get(seq, ())), default=-1)

    @property
    def top(self) -> int:
        """Number of the last used cell + 1: attention reads the cells below."""
        return max((max(cells) for cells in self.held.values() if cells), default=-1) + 1

    def runs(self) -> list[CellRun]:
        """The used cells in order, as runs."""
        found: list[CellRun] = []
        for cell in sorted(set().union(*self.held.values())):
            seqs, pos = self.owners[cell], self.positions[cell]
            if found:
                first, num, before, start = found[-1]
                if first + num == cell and before == seqs and start + num == pos:
                    found[-1] = CellRun(first, num + 1, seqs, start)
                    continue
            found.append(CellRun(cell, 1, seqs, pos))
        return found

    # --- new tokens -------------------------------------------------------------------------------

    @abstractmethod
    def find(self, num: int) -> list[int] | None:
        """The cells that `num` new tokens take, in order; None: there is no room."""

    def place(self, cells: list[int], runs: Iterable[TokenRun]) -> None:
        """Store new tokens in `cells`. If a cell of a sequence is overwritten, the sequence also
        loses all lower positions: a sequence has no gaps.
        """
        overwritten: dict[int, int] = {}
        owners, at = self.owners, 0
        for seqs, pos, num in runs:
            taken = cells[at : at + num]
            at += num
            used = [cell for cell in taken if owners[cell]]
            for cell in used:
                (seq,) = owners[cell]
                overwritten[seq] = max(overwritten.get(seq, -1), self.positions[cell])
            self._empty(used)
            self._fill(taken, seqs, pos)
        for seq, pos in overwritten.items():
            self.remove(seq, 0, pos + 1)
        if cells:
            self.head = cells[-1] + 1

    def _fill(self, cells: Collection[int], seqs: tuple[int, ...], pos: int) -> None:
        """Fill empty cells with tokens of these sequences at positions pos, pos + 1, ..."""
        owners, positions, at = self.owners, self.positions, pos
        for cell in cells:
            owners[cell], positions[cell] = seqs, at
            at += 1
        self.used += at - pos
        if self.touched is not None:
            self.touched.update(cells)
        for seq in seqs:
            self.held.setdefault(seq, set()).update(cells)
            if self._last.get(seq, OPEN) < at - 1:
                self._last[seq] = at - 1

    def _empty(self, cells: Collection[int]) -> None:
        """Empty these cells."""
        if self.touched is not None:
            self.touched.update(cells)
        owners, positions, held, last = self.owners, self.positions, self.held, self._last
        for cell in cells:
            for seq in owners[cell]:
                held[seq].discard(cell)
                if last.get(seq) == positions[cell]:
                    del last[seq]
            self.used -= bool(owners[cell])
            owners[cell], positions[cell] = (), 0

    def _empty_own(self, seq: int, cells: list[int]) -> None:
        """Empty `cells`, which `seq` alone holds, in one pass."""
        if not cells:
            return
        if self.touched is not None:
            self.touched.update(cells)
        owners, positions, last = self.owners, self.positions, self._last.get(seq)
        highest = -1
        for cell in cells:
            highest = max(highest, positions[cell])
            owners[cell], positions[cell] = (), 0
        self.held[seq].difference_update(cells)
        self.used -= len(cells)
        if highest == last:
            del self._last[seq]

    def _put(self, cell: int, seqs: tuple[int, ...], pos: int) -> None:
        """Set one cell to this token of these sequences, whatever it held before."""
        self._empty((cell,))
        if seqs:
            self._fill((cell,), seqs, pos)

    def snapshot(self, cells: list[int]) -> HeldCells:
        """A copy of the content of `cells`, for `put_back`."""
        held = [(cell, self.owners[cell], self.positions[cell]) for cell in cells]
        return HeldCells(held, dict(self._last))

    def put_back(self, before: HeldCells, head: int) -> None:
        """Restore cells from a snapshot; the next search starts at `head`."""
        self._empty([cell for cell, _, _ in before.cells])
        for cell, owners, pos in before.cells:
            if owners:
                self._fill((cell,), owners, pos)
        # What was removed meanwhile lay below what was overwritten: no end of a sequence.
        self._last = before.last
        self.head = head

    # --- sequences --------------------------------------------------------------------------------

    def _within(self, seq: int, p0: int, p1: int) -> list[int]:
        """The cells of a sequence at positions [p0, p1); seq -1: of any."""
        positions = self.positions
        held = self.held.get(seq, ()) if seq >= 0 else set().union(*self.held.values())
        if p0 <= 0 and p1 >= OPEN:
            return list(held)
        return [cell for cell in held if p0 <= positions[cell] < p1]

    def remove(self, seq: int, p0: int, p1: int) -> None:
        """Remove a sequence (-1: all) from its cells at positions [p0, p1)."""
        emptied = []
        for cell in self._within(seq, p0, p1):
            owners = self.owners[cell]
            if seq < 0 or len(owners) == 1:
                emptied.append(cell)
            else:
                left = tuple(other for other in owners if other != seq)
                self._put(cell, left, self.positions[cell])
        if seq < 0:
            self._empty(emptied)
        else:
            self._empty_own(seq, emptied)
        self.head = min(self.head, min(emptied, default=self.size))

    def keep(self, seq: int) -> None:
        """Remove all sequences but `seq`."""
        for other in [other for other in self.held if other != seq]:
            self.remove(other, 0, OPEN)

    def share(self, source: int, target: int, p0: int, p1: int) -> None:
        """Make `target` a second owner of the cells of `source` at positions [p0, p1)."""
        for cell in self._within(source, p0, p1):
            if target not in self.owners[cell]:
                seqs = tuple(sorted((*self.owners[cell], target)))
                self._put(cell, seqs, self.positions[cell])

    def shift(self, seq: int, p0: int, p1: int, delta: int) -> None:
        """Add `delta` to positions [p0, p1) of a sequence; a shared cell moves for all its
        owners.
        """
        emptied = self.size
        for cell in self._within(seq, p0, p1):
            pos = self.positions[cell] + delta
            if pos < 0:
                emptied = min(emptied, cell)
            self._put(cell, () if pos < 0 else self.owners[cell], max(pos, 0))
        self.head = 0 if emptied == self.size else emptied

    def divide(self, seq: int, p0: int, p1: int, divisor: int) -> None:
        """Divide positions [p0, p1) of a sequence by `divisor`."""
        for cell in self._within(seq, p0, p1):
            self._put(cell, self.owners[cell], self.positions[cell] // divisor)

    def clear(self) -> None:
        """Empty every cell and reset the head to the first."""
        if self.touched is not None:
            self.touched.update(range(self.size))
        self.owners, self.positions = [()] * self.size, [0] * self.size
        self.head = self.used = 0
        self.held, self._last = {}, {}

    def copy_from(self, other: "CellField", source: int, target: int) -> None:
        """Copy the tokens of `source` in the buffer `other` to the same cells here, owned by
        `target`, and the head.
        """
        self.clear()
        for cell in other.held.get(source, ()):
            self._put(cell, (target,), other.positions[cell])
        self.head = other.head

    def visible(self, seq: int) -> list[int]:
        """The cells of a sequence in order, without cells outside its window."""
        cells, last = sorted(self.held.get(seq, ())), self.last_position(seq)
        if not self.window:
            return cells
        return [cell for cell in cells if last - self.positions[cell] < self.window]

    def contents(self, cells: Iterable[int], only: int = -1) -> tuple[TokenRun, ...]:
        """The tokens in these used cells, in cell order, as runs. only: the one sequence to list as
        their owner, -1 for all owners.
        """
        found: list[TokenRun] = []
        mine, start, end = (only,), 0, -1
        seqs: tuple[int, ...] = ()
        for cell in cells:
            here = mine if only >= 0 else self.owners[cell]
            pos = self.positions[cell]
            if pos != end or here != seqs:
                if seqs:
                    found.append(TokenRun(seqs, start, end - start))
                seqs, start = here, pos
            end = pos + 1
        if seqs:
            found.append(TokenRun(seqs, start, end - start))
        return tuple(found)

    def num_visible(self, seq: int) -> int:
        """Number of cells of a sequence inside its window."""
        return len(self.visible(seq) if self.window else self.held.get(seq, ()))

    def check(self) -> None:
        """Raise InvariantError if counts and tables differ from the cells."""
        held: dict[int, set[int]] = {}
        for cell, seqs in enumerate(self.owners):
            for seq in seqs:
                held.setdefault(seq, set()).add(cell)
        if held != {seq: cells for seq, cells in self.held.items() if cells}:
            raise InvariantError("the tables of sequences differ from the cells")
        used = sum(1 for seqs in self.owners if seqs)
        if used != self.used or not 0 <= self.head <= self.size:
            raise InvariantError(f"{used} cells used, counted as {self.used}; head {self.head}")
        for seq in self._last:
            last = max((self.positions[cell] for cell in held.get(seq, ())), default=-1)
            if last != self.last_position(seq):
                raise InvariantError(f"sequence {seq} ends at {last}, not {self._last[seq]}")


class ScatteredField(CellField):
    """A buffer in which new tokens take any usable cells from the head on, adjacent or not."""

    def is_usable(self, cell: int) -> bool:
        """Whether a new token may take a cell: an empty one, or one outside the window of its only
        sequence.
        """
        owners = self.owners[cell]
        if not owners:
            return True
        if not self.window or len(owners) > 1:
            return False
        return self.last_position(owners[0]) + 1 - self.positions[cell] >= self.window

    def find(self, num: int) -> list[int] | None:
        """The cells that `num` new tokens take, in order; None: there are too few."""
        size, owners = self.size, self.owners
        if num > size or (not self.window and num > size - self.used):
            return None
        cell = 0 if self.head > self.used + 2 * num else self.head
        found: list[int] = []
        for _ in range(size):
            if cell >= size:
                cell = 0
            if not owners[cell] or (self.window and self.is_usable(cell)):
                found.append(cell)
                if len(found) == num:
                    return found
            cell += 1
        return None
