"""llama.cpp's KV cache of a whole model: placing batches, editing sequences, and saving and
restoring state.

As src/llama-kv-cache-iswa.cpp does it (0c1e57098); the older version is in older.py.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from kvsim.memory.cells.batch import equal_parts, num_tokens, slices
from kvsim.memory.cells.field import CellField, TokenRun, open_range
from kvsim.memory.cells.layer_cache import Cache, SavedTokens

DONE, NO_ROOM, REFUSED = 0, 1, -1  # what a decode returns
HEADER_BYTES = 8  # of a saved state


class SavedState(NamedTuple):
    """A saved state: the tokens of each buffer of each cache. num_bytes: its size in host
    memory.
    """

    caches: tuple[tuple[SavedTokens, ...], ...]
    num_bytes: int


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
        """The buffers of `seq`, one for each cache; of all sequences if `seq` is -1."""
        if seq < 0:
            return [field for cache in self.caches for field in cache.fields]
        return [cache.field(seq) for cache in self.caches]

    # --- batches ----------------------------------------------------------------------------------

    @abstractmethod
    def decode(self, runs: Sequence[TokenRun]) -> int:
        """Place a batch: DONE, NO_ROOM or REFUSED."""

    # --- sequences --------------------------------------------------------------------------------

    def remove(self, seq: int, p0: int = -1, p1: int = -1) -> None:
        """Remove a sequence (-1: all) from its cells at positions [p0, p1)."""
        p0, p1 = open_range(p0, p1)
        for field in self.fields(seq):
            field.remove(seq, p0, p1)

    def share(self, source: int, target: int, p0: int = -1, p1: int = -1) -> None:
        """Copy a sequence's tokens to `target` (seq_cp): both own the same cells, or, with a buffer
        each, all tokens are copied.
        """
        p0, p1 = open_range(p0, p1)
        for cache in self.caches:
            here, there = cache.field(source), cache.field(target)
            if here is there:
                here.share(source, target, p0, p1)
            else:
                there.copy_from(here, source, target)

    def keep(self, seq: int) -> None:
        """Remove all other sequences from the buffer of `seq` (seq_keep)."""
        for field in self.fields(seq):
            field.keep(seq)

    def shift(self, seq: int, p0: int, p1: int, delta: int) -> None:
        """Add `delta` to positions [p0, p1) of a sequence (seq_add)."""
        p0, p1 = open_range(p0, p1)
        if delta and p0 < p1:
            for field in self.fields(seq):
                field.shift(seq, p0, p1, delta)

    def divide(self, seq: int, p0: int, p1: int, divisor: int) -> None:
        """Divide positions [p0, p1) of a sequence by `divisor` (seq_div)."""
        p0, p1 = open_range(p0, p1)
        if divisor != 1 and p0 < p1:
            for field in self.fields(seq):
                field.divide(seq, p0, p1, divisor)

    # --- states -----------------------------------------------------------------------------------

    def save(self, seq: int = -1, *, windows_only: bool = False) -> SavedState:
        """A copy of the tokens of a sequence, or (-1) of the whole cache. windows_only: of the
        window cache alone.
        """
        caches = self.caches[1:] if windows_only else self.caches
        saved = tuple(cache.saved(seq) for cache in caches)
        size = sum(cache.saved_bytes(cells) for cache, cells in zip(caches, saved, strict=True))
        return SavedState(saved, HEADER_BYTES + size)

    def state_bytes(self, seq: int) -> int:
        """The size on the host of what `save` would copy of a sequence."""
        return HEADER_BYTES + sum(cache.sequence_bytes(seq) for cache in self.caches)

    def restore(self, state: SavedState, seq: int, *, windows_only: bool = False) -> bool:
        """Replace the tokens of `seq` by a saved state; False: no room, and `seq` is left empty."""
        caches = self.caches[1:] if windows_only else self.caches
        for cache, buffers in zip(caches, state.caches, strict=True):
            if not cache.restore(seq, buffers[0]):
                return False
        return True

    def restore_all(self, state: SavedState) -> None:
        """Replace the whole cache by a saved state, from the first cell of each buffer, without
        holes.
        """
        for cache, buffers in zip(self.caches, state.caches, strict=True):
            for field, tokens in zip(cache.fields, buffers, strict=True):
                field.clear()
                field.place(list(range(num_tokens(tokens))), tokens)
                field.head = 0

    def check(self) -> None:
        """Raise InvariantError if counts and tables differ from the cells."""
        for field in self.fields():
            field.check()


class CurrentCache(CellCache):
    """The cache of current llama.cpp: a batch is placed as a whole before anything is computed, or
    refused.
    """

    def decode(self, runs: Sequence[TokenRun]) -> int:
        """Place a batch: DONE, NO_ROOM or, for positions that do not continue, REFUSED. With a
        buffer for each sequence, a token shared by several sequences gives NO_ROOM.
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
        """The ways to split a batch into micro-batches, in the order in which they are tried."""
        size = self._micro_batch
        if not self.unified:
            return [equal_parts(runs, size, by_number=True)]
        if len(self.caches) == 1:
            return [slices(runs, size)]
        return [slices(runs, size), equal_parts(runs, size, by_number=False)]

    def _continues(self, runs: Sequence[TokenRun]) -> bool:
        """Whether the positions of each sequence continue without gaps, and sequences that share
        tokens have the same positions. Within a batch a position may occur twice.
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
