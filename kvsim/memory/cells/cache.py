"""llama.cpp's KV cache as a whole: buffers, their windowed twins, batches and saved states.

As src/llama-kv-cache.cpp and src/llama-kv-cache-iswa.cpp do it (0c1e57098). A batch is placed as a
whole before anything is computed, or refused.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.memory.cells.batch import equal_parts, num_tokens, slices
from kvsim.memory.cells.field import OPEN, CellField, HeldCells, TokenRun, open_range

DONE, NO_ROOM, REFUSED = 0, 1, -1  # what a decode returns
HEADER_BYTES = 8  # of a saved state


SavedTokens = tuple[TokenRun, ...]  # of one buffer, in the order of its cells


class SavedState(NamedTuple):
    """What was saved: of each cache, the tokens of each buffer. num_bytes: its size on the host."""

    caches: tuple[tuple[SavedTokens, ...], ...]
    num_bytes: int


class LayerCost(NamedTuple):
    """What saved cells cost. layers: with KV in this cache; row_bytes: of K and V in all."""

    layers: int
    row_bytes: int


class _TriedPlacement(NamedTuple):
    """A micro-batch that is tried out. fields: its buffers; held: what its cells held in each of
    them; heads: of all buffers of the cache before it.
    """

    fields: list[CellField]
    held: list[HeldCells]
    heads: list[int]


class Cache:
    """The buffers of the layers that keep as much: one for all sequences, or one each."""

    def __init__(self, cells: int, buffers: int, cost: LayerCost, window: int = 0) -> None:
        self.fields = [CellField(cells, window) for _ in range(buffers)]
        self.cost = cost

    def field(self, seq: int) -> CellField:
        """The buffer of a sequence."""
        return self.fields[seq if len(self.fields) > 1 else 0]

    def place(
        self, part: Sequence[TokenRun]
    ) -> list[tuple[CellField, list[int], list[TokenRun]]] | None:
        """Where a micro-batch goes, the cells and tokens of each buffer; None: one has no room."""
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
        """Where the micro-batches of a batch go, tried out one after the other and taken back;
        None: one of them finds no room. What a window cache removed on the way stays removed.
        """
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
        """The tokens of a sequence, or (-1) of each buffer all that are used."""
        if seq < 0:
            return tuple(
                field.contents(cell for cell in range(field.top) if field.owners[cell])
                for field in self.fields
            )
        field = self.field(seq)
        return (field.contents(field.visible(seq), only=seq),)

    def saved_bytes(self, buffers: Sequence[SavedTokens]) -> int:
        """What these tokens cost on the host (state_write of llama-kv-cache.cpp)."""
        counts = [
            (num_tokens(tokens), sum(run.num * len(run.seqs) for run in tokens))
            for tokens in buffers
        ]
        return self._state_bytes(counts)

    def sequence_bytes(self, seq: int) -> int:
        """The same of the cells of one sequence, without a copy of them."""
        num = self.field(seq).num_visible(seq)
        return self._state_bytes([(num, num)])

    def _state_bytes(self, counts: Sequence[tuple[int, int]]) -> int:
        """counts: of each buffer, the cells and the sequences in them."""
        num = 4 + 4 * len(self.fields)
        for cells, seqs in counts:
            if cells:
                num += cells * (8 + self.cost.row_bytes) + 4 * seqs + 8 + 24 * self.cost.layers
        return num

    def restore(self, seq: int, tokens: SavedTokens) -> bool:
        """A sequence has these tokens, and no others, where new ones would go; False: no room, and
        it has none.
        """
        if not tokens:
            return True
        field = self.field(seq)
        field.remove(seq, 0, OPEN)
        places = field.find(num_tokens(tokens))
        if places is not None:
            field.place(places, [run._replace(seqs=(seq,)) for run in tokens])
        return places is not None


class CellCache:
    """The caches of a model: base, of the layers that keep every token, and windowed, if some keep
    a window. unified: one buffer for all sequences, else one each.
    """

    def __init__(
        self,
        num_sequences: int,
        micro_batch: int,
        base: Cache,
        windowed: Cache | None = None,
    ) -> None:
        self.num_sequences = num_sequences
        self.unified = len(base.fields) == 1
        self.caches = (base,) if windowed is None else (base, windowed)
        self._micro_batch = micro_batch

    # --- positions --------------------------------------------------------------------------------

    def last_position(self, seq: int) -> int:
        """The highest position of a sequence, -1 if it has none."""
        return self.caches[-1].field(seq).last_position(seq)

    def first_position(self, seq: int) -> int:
        """The lowest position that every layer's cache still has, -1 if there is none."""
        return self.caches[-1].field(seq).first_position(seq)

    def fields(self, seq: int = -1) -> list[CellField]:
        """The buffers of a sequence, or of all."""
        if seq < 0:
            return [field for cache in self.caches for field in cache.fields]
        return [cache.field(seq) for cache in self.caches]

    # --- batches ----------------------------------------------------------------------------------

    def decode(self, runs: Sequence[TokenRun]) -> int:
        """Place a batch: DONE, NO_ROOM or, for positions that do not continue, REFUSED. A token of
        several sequences has no room where each sequence has a buffer.
        """
        if not self._continues(runs):
            return REFUSED
        if not self.unified and any(len(run.seqs) > 1 for run in runs):
            return NO_ROOM
        for parts in self._cuts(runs):
            plans = []
            for cache in self.caches:
                plan = cache.plan(parts)
                if plan is None:
                    break
                plans.append(plan)
            else:
                for plan in plans:
                    for field, cells, some in plan:
                        field.place(cells, some)
                return DONE
        return NO_ROOM

    def _cuts(self, runs: Sequence[TokenRun]) -> "list[list[list[TokenRun]]]":
        """The ways to cut a batch, in the order in which they are tried."""
        size = self._micro_batch
        if not self.unified:
            return [equal_parts(runs, size, by_number=True)]
        if len(self.caches) == 1:
            return [slices(runs, size)]
        return [slices(runs, size), equal_parts(runs, size, by_number=False)]

    def _continues(self, runs: Sequence[TokenRun]) -> bool:
        """Whether the tokens of each sequence follow those it has, without gaps, and sequences that
        share tokens have the same positions. Within a batch a position may come twice.
        """
        ends: dict[int, int] = {}
        for seqs, pos, num in runs:
            for seq in seqs:
                if not 0 <= seq < self.num_sequences:
                    return False
                if seq in ends:
                    follows = ends[seq] <= pos <= ends[seq] + 1
                else:
                    before = self.last_position(seq)
                    follows = before < 0 or pos == before + 1
                if not follows:
                    return False
                ends[seq] = pos + num - 1
            shared = seqs if len(seqs) > 1 else ()
            if len({(self.first_position(seq), self.last_position(seq)) for seq in shared}) > 1:
                return False
        return True

    # --- sequences --------------------------------------------------------------------------------

    def remove(self, seq: int, p0: int = -1, p1: int = -1) -> None:
        """A sequence (-1: every one) leaves its cells at positions [p0, p1)."""
        p0, p1 = open_range(p0, p1)
        for field in self.fields(seq):
            field.remove(seq, p0, p1)

    def share(self, source: int, target: int, p0: int = -1, p1: int = -1) -> None:
        """The tokens of one sequence are the other's too: the same cells, or, with a buffer each, a
        copy of all of them.
        """
        p0, p1 = open_range(p0, p1)
        for cache in self.caches:
            here, there = cache.field(source), cache.field(target)
            if here is there:
                here.share(source, target, p0, p1)
            else:
                there.copy_from(here, source, target)

    def keep(self, seq: int) -> None:
        """All other sequences of its buffer leave."""
        for field in self.fields(seq):
            field.keep(seq)

    def shift(self, seq: int, p0: int, p1: int, delta: int) -> None:
        """Positions [p0, p1) of a sequence move by `delta`."""
        p0, p1 = open_range(p0, p1)
        if delta and p0 < p1:
            for field in self.fields(seq):
                field.shift(seq, p0, p1, delta)

    def divide(self, seq: int, p0: int, p1: int, divisor: int) -> None:
        """Positions [p0, p1) of a sequence are divided."""
        p0, p1 = open_range(p0, p1)
        if divisor != 1 and p0 < p1:
            for field in self.fields(seq):
                field.divide(seq, p0, p1, divisor)

    # --- states -----------------------------------------------------------------------------------

    def save(self, seq: int = -1, *, windows_only: bool = False) -> SavedState:
        """What a sequence has, or (-1) the whole cache. windows_only: of the window cache alone."""
        caches = self.caches[1:] if windows_only else self.caches
        saved = tuple(cache.saved(seq) for cache in caches)
        size = sum(cache.saved_bytes(cells) for cache, cells in zip(caches, saved, strict=True))
        return SavedState(saved, HEADER_BYTES + size)

    def state_bytes(self, seq: int) -> int:
        """The size on the host of what `save` would copy of a sequence."""
        return HEADER_BYTES + sum(cache.sequence_bytes(seq) for cache in self.caches)

    def restore(self, state: SavedState, seq: int, *, windows_only: bool = False) -> bool:
        """A sequence has what was saved, and nothing else; False: no room, and it has nothing."""
        caches = self.caches[1:] if windows_only else self.caches
        for cache, buffers in zip(caches, state.caches, strict=True):
            if not cache.restore(seq, buffers[0]):
                return False
        return True

    def restore_all(self, state: SavedState) -> None:
        """The whole cache is what was saved, from the first cell of each buffer without holes."""
        for cache, buffers in zip(self.caches, state.caches, strict=True):
            for field, tokens in zip(cache.fields, buffers, strict=True):
                field.clear()
                field.place(list(range(num_tokens(tokens))), tokens)
                field.head = 0

    def check(self) -> None:
        """Raise InvariantError if counts and tables differ from the cells."""
        for field in self.fields():
            field.check()
