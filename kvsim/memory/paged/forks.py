"""Samples of one request on one prompt: shared blocks, copied when one of them is written.

As in vLLM v0 and the PagedAttention paper (Kwon et al., SOSP 2023, section 4.4): the n sequences of
a request fork from one prompt. All its blocks are shared, the last, partly filled one too. A
sequence that is about to write into a shared block first copies it to a new block; the last holder
writes in place. So after g >= 1 tokens each, with full = prompt // block_size,

    physical blocks = full + n * (ceil((prompt + g) / block_size) - full)
    copies          = n - 1 if the prompt ends within a block, else none

Since v1 the samples are requests of their own that share full blocks through the prefix cache.

A forked sequence still computes the prompt's last token, for its logits; v0 samples all first
tokens from one computation. It starts when the prompt is computed, and is preempted alone. Copies
are counted, one block each, and take no time.
"""

from kvsim.memory.paged.blocks import NOTHING_FOUND, Extent, Found, Table
from kvsim.memory.paged.decoders import Decoders
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.tables import BlockTables
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence, by_order


class Forks:
    """The families of samples (parallel sampling, n > 1) on one pool with one block table for all
    layers.

    num_copies: blocks copied so far.

    A sequence is forked while its last block is shared. None of its slots count as never to be
    filled, since the other holders may fill them.
    """

    def __init__(
        self,
        pool: BlockPool,
        tables: BlockTables,
        decoders: Decoders,
        block_size: int,
        slot_bytes: int,
    ) -> None:
        self.num_copies = 0
        self._pool = pool
        self._tables = tables
        self._decoders = decoders
        self._size, self._slot_bytes = block_size, slot_bytes
        self._families: dict[str, dict[Sequence, None]] = {}  # live samples by request
        self._forked: dict[Sequence, None] = {}

    def __contains__(self, seq: Sequence) -> bool:
        return seq in self._forked

    # --- admission -----------------------------------------------------------------------------

    def prompt_blocks(self, seq: Sequence) -> Found:
        """Blocks of the prompt that the family shares with `seq` now.

        All blocks of the prompt if `seq` is new and no member has written after the prompt, else
        only its full blocks.
        """
        prompt = seq.prompt_tokens
        best = NOTHING_FOUND
        for other in self._families.get(seq.request.id, ()):
            table: Table = other.memory
            if table.tokens < prompt:
                continue
            if not seq.num_outputs and self._decoders.slots(other) == prompt:
                return _first(table, ceil_div(prompt, self._size))
            best = _first(table, prompt // self._size)
        return best

    def prompt_is_coming(self, seq: Sequence) -> bool:
        """Whether another sample is computing the prompt that `seq` will share."""
        family = self._families.get(seq.request.id, ())
        return any(other.memory.tokens < seq.prompt_tokens for other in family)

    def admitted(self, seq: Sequence, hits: Found) -> None:
        """`seq` has taken over its hits: add it to its family, and mark it as forked if it shares a
        block that will be written.
        """
        family = self._families.get(seq.request.id, {})
        others = list(family)
        if seq.request.n > 1:
            self._families.setdefault(seq.request.id, family)[seq] = None
        rest = seq.prompt_tokens % self._size
        if not rest or seq.num_outputs or hits.num * self._size <= seq.prompt_tokens:
            return
        self._fill(self._size - rest)  # the other slots of it are valid
        table: Table = seq.memory
        table.registered = table.named[0] = min(table.registered, hits.num - 1)
        last = self._last(seq)
        for other in others:
            if self._last(other) is last:
                self._fork(other)
        self._fork(seq)

    def _fork(self, seq: Sequence) -> None:
        if seq not in self._forked:
            self._forked[seq] = None
            self._tables.gave_up(seq.final_tokens, seq.memory.count)

    def _own(self, seq: Sequence) -> None:
        """Mark the last block of `seq` as unshared."""
        del self._forked[seq]
        self._tables.grown(seq.final_tokens, 0, seq.memory.count)

    def _fill(self, slots: int) -> None:
        """Count `slots` more valid slots of shared blocks."""
        self._tables.used_bytes += slots * self._slot_bytes

    def _last(self, seq: Sequence) -> Extent:
        """The last block of a live sequence."""
        table: Table = seq.memory
        return table.parts[0][-1][1]

    # --- decoding ------------------------------------------------------------------------------

    def copying(self) -> list[Sequence]:
        """Sequences that write into a shared block in the next step, in running order."""
        if not self._forked:
            return []
        writers = (seq for seq in self._forked if seq.decoding and self._last(seq).owners > 1)
        return sorted(writers, key=by_order)

    def make_room(self, seq: Sequence, num_tokens: int) -> bool:
        """Take the block for a copy before `seq` holds `num_tokens` slots; False: none is free."""
        if seq not in self._forked or num_tokens <= seq.prompt_tokens:
            return True
        if self._last(seq).owners > 1 and not self._pool.num_free:
            return False
        self._write(seq)
        return True

    def advance(self) -> None:
        """All decoders write a token: make the copies that this needs."""
        for seq in sorted(self._forked, key=by_order):
            if seq.decoding:
                self._write(seq)

    def _write(self, seq: Sequence) -> None:
        """Write the first token of `seq` after its prompt, for which it needs an unshared block."""
        table: Table = seq.memory
        place, last, _ = table.parts[0][-1]
        if last.owners > 1:
            self._pool.drop(last)
            (copy,) = self._pool.deal(0, self._pool.take(1), 1)
            table.parts[0][-1] = place, copy, 1
            self._fill(seq.prompt_tokens % self._size)
            self.num_copies += 1
        self._own(seq)

    # --- release -------------------------------------------------------------------------------

    def leave(self, seq: Sequence) -> None:
        """`seq` is about to free its blocks. Empty slots of its last block that other holders count
        as full no longer count as valid.
        """
        family = self._families.get(seq.request.id)
        if family is not None:
            del family[seq]
            if not family:
                del self._families[seq.request.id]
        if seq in self._forked:
            if self._last(seq).owners > 1:
                self._fill(seq.prompt_tokens % self._size - self._size)
            self._own(seq)


def _first(table: Table, num: int) -> Found:
    """The first `num` blocks of a table."""
    parts = [(extent, count) for _, extent, count in table.parts[0][:num]]
    return Found(len(parts), 0, parts) if parts else NOTHING_FOUND
