"""llama.cpp's KV cache for the layers with one window, or for those with none.

The cache has the buffers of cells, places micro-batches in cells, and lists the tokens that a saved
state contains.

Source: src/llama-kv-cache.cpp (0c1e57098).
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.memory.cells.batch import num_tokens
from kvsim.memory.cells.field import OPEN, CellField, HeldCells, ScatteredField, TokenRun

SavedTokens = tuple[TokenRun, ...]  # of one buffer, in the order of its cells


class LayerCost(NamedTuple):
    """Bytes to save cells. layers: number of layers with KV in this cache; row_bytes: bytes of K
    and V of a cell, all layers.
    """

    layers: int
    row_bytes: int


class _TriedPlacement(NamedTuple):
    """A trial placement of a micro-batch, to undo. fields: the buffers used; held: the previous
    content of the cells in each of them; heads: of all buffers of the cache, before the trial.
    """

    fields: list[CellField]
    held: list[HeldCells]
    heads: list[int]


class Cache:
    """The buffers of the layers with one window, or of those with none: one buffer for all
    sequences, or one for each.
    """

    def __init__(self, cells: int, buffers: int, cost: LayerCost, window: int = 0) -> None:
        self.fields: list[CellField] = [ScatteredField(cells, window) for _ in range(buffers)]
        self.cost = cost

    def field(self, seq: int) -> CellField:
        """The buffer of a sequence."""
        return self.fields[seq if len(self.fields) > 1 else 0]

    def place(
        self, part: Sequence[TokenRun]
    ) -> list[tuple[CellField, list[int], list[TokenRun]]] | None:
        """Find cells for a micro-batch: (buffer, cells, tokens) for each buffer; None: a buffer has
        no room.
        """
        by_buffer: dict[int, list[TokenRun]] = {}
        for run in part:
            by_buffer.setdefault(run.seqs[0] if len(self.fields) > 1 else 0, []).append(run)
        found = []
        for number, runs in by_buffer.items():
            field = self.fields[number]
            cells = field.find(num_tokens(runs))
            if cells is None:
                return None
            found.append((field, cells, runs))
        return found

    def plan(
        self, parts: Sequence[Sequence[TokenRun]]
    ) -> list[tuple[CellField, list[int], list[TokenRun]]] | None:
        """Find cells for all micro-batches of a batch: (buffer, cells, tokens) of each; None: one
        has no room.

        Trial placements are undone, but tokens that a window cache removed during the trial stay
        removed.
        """
        if len(parts) == 1 and not self.fields[0].window:
            places = self.place(parts[0])
            heads = [field.head for field in self.fields]
            for at, (field, _, _) in enumerate(places or ()):
                field.head = heads[at]  # as below
            return places
        planned: list[tuple[CellField, list[int], list[TokenRun]]] = []
        trials: list[_TriedPlacement] = []
        fits = True
        for at, part in enumerate(parts, 1):
            places = self.place(part)
            if places is None:
                fits = False
                break
            planned += places
            # The last part has no later one, and without a window it removes nothing.
            tried = at < len(parts) or bool(self.fields[0].window)
            heads = [field.head for field in self.fields]
            held = [field.snapshot(cells if tried else []) for field, cells, _ in places]
            trials.append(_TriedPlacement([field for field, _, _ in places], held, heads))
            if tried:
                for field, cells, runs in places:
                    field.place(cells, runs)
        for trial in reversed(trials):
            for at, (field, before) in enumerate(zip(trial.fields, trial.held, strict=True)):
                # The program confuses the buffers here: the head is that of the buffer number `at`.
                field.put_back(before, trial.heads[at])
        return planned if fits else None

    def saved(self, seq: int) -> tuple[SavedTokens, ...]:
        """The saved tokens of a sequence, or (-1) all used tokens of each buffer."""
        if seq < 0:
            return tuple(
                field.contents(cell for cell in range(field.top) if field.owners[cell])
                for field in self.fields
            )
        field = self.field(seq)
        return (field.contents(field.visible(seq), only=seq),)

    def saved_bytes(self, buffers: Sequence[SavedTokens]) -> int:
        """Bytes of host memory for the saved tokens of each buffer (state_write of
        llama-kv-cache.cpp).
        """
        counts = [
            (num_tokens(tokens), sum(run.num * len(run.seqs) for run in tokens))
            for tokens in buffers
        ]
        return self._state_bytes(counts)

    def sequence_bytes(self, seq: int) -> int:
        """Bytes of host memory that saving one sequence would take, computed without a copy."""
        num = self.field(seq).num_visible(seq)
        return self._state_bytes([(num, num)])

    def _state_bytes(self, counts: Sequence[tuple[int, int]]) -> int:
        """Size in bytes of a saved state. counts: for each buffer, (cells, sequence ids in those
        cells).
        """
        num = 4 + 4 * len(self.fields)
        for cells, seqs in counts:
            if cells:
                num += cells * (8 + self.cost.row_bytes) + 4 * seqs + 8 + 24 * self.cost.layers
        return num

    def restore(self, seq: int, tokens: SavedTokens) -> bool:
        """Replace the tokens of a sequence, in the cells that new tokens would take; False: no
        room, and the sequence is left empty.
        """
        if not tokens:
            return True
        field = self.field(seq)
        field.remove(seq, 0, OPEN)
        places = field.find(num_tokens(tokens))
        if places is not None:
            field.place(places, [run._replace(seqs=(seq,)) for run in tokens])
        return places is not None
