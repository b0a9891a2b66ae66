"""Cells of llama.cpp's cache as its rules say them, each answered by a look at every cell."""

from dataclasses import dataclass, field


@dataclass
class NaiveCell:
    """A cell: the token's position and its sequences, none if it is empty."""

    pos: int = 0
    seqs: set[int] = field(default_factory=set)


class NaiveField:
    """One buffer; window 0: every token is kept."""

    def __init__(self, size: int, window: int) -> None:
        self.cells = [NaiveCell() for _ in range(size)]
        self.window = window
        self.head = 0

    def of(self, seq: int) -> list[int]:
        return [at for at, cell in enumerate(self.cells) if seq in cell.seqs]

    def last(self, seq: int) -> int:
        return max((self.cells[at].pos for at in self.of(seq)), default=-1)

    def decode(self, seqs: tuple[int, ...], pos: int, num: int) -> bool:
        cells, size = self.cells, len(self.cells)
        start = 0 if self.head > sum(bool(c.seqs) for c in cells) + 2 * num else self.head
        last = {seq: self.last(seq) for cell in cells for seq in cell.seqs}
        around = [at % size for at in range(start, start + size)]
        taken = [at for at in around if self._usable(cells[at], last)][:num]
        if len(taken) < num:
            return False
        cut: dict[int, int] = {}
        for offset, at in enumerate(taken):
            for seq in cells[at].seqs:
                cut[seq] = max(cut.get(seq, -1), cells[at].pos)
            cells[at] = NaiveCell(pos + offset, set(seqs))
        for seq, highest in cut.items():
            self._leave(seq, 0, highest + 1)
        self.head = taken[-1] + 1
        return True

    def _usable(self, cell: NaiveCell, last: dict[int, int]) -> bool:
        if not cell.seqs:
            return True
        (seq, *others) = cell.seqs
        return bool(self.window) and not others and last[seq] + 1 - cell.pos >= self.window

    def _leave(self, seq: int, p0: int, p1: int) -> list[int]:
        emptied = []
        for at in self.of(seq):
            cell = self.cells[at]
            if p0 <= cell.pos < p1:
                cell.seqs.discard(seq)
                if not cell.seqs:
                    emptied.append(at)
        return emptied

    def remove(self, seq: int, p0: int, p1: int) -> None:
        self.head = min([self.head, *self._leave(seq, p0, p1)])

    def keep(self, seq: int) -> None:
        for other in {other for cell in self.cells for other in cell.seqs} - {seq}:
            self.remove(other, 0, 1 << 60)

    def share(self, source: int, target: int, p0: int, p1: int) -> None:
        for at in self.of(source):
            if p0 <= self.cells[at].pos < p1:
                self.cells[at].seqs.add(target)

    def shift(self, seq: int, p0: int, p1: int, delta: int) -> None:
        emptied = []
        for at in self.of(seq):
            if p0 <= self.cells[at].pos < p1:
                self.cells[at].pos += delta
                if self.cells[at].pos < 0:
                    self.cells[at] = NaiveCell()
                    emptied.append(at)
        self.head = min(emptied, default=0)

    def content(self) -> list[tuple[int, tuple[int, ...]]]:
        return [(cell.pos if cell.seqs else 0, tuple(sorted(cell.seqs))) for cell in self.cells]
