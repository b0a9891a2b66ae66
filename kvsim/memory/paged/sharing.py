"""Samples of one request on one prompt: shared blocks, copied when one of them is written.

As in vLLM v0 and the PagedAttention paper (Kwon et al., SOSP 2023, section 4.4): the n sequences of
a request fork from one prompt. All its blocks are shared, the last, partly filled one too. A
sequence that is about to write into a block others hold takes a block of its own and copies; the
last holder writes in place. So after g >= 1 tokens each, with full = prompt // block_size,

    physical blocks = full + n * (ceil((prompt + g) / block_size) - full)
    copies          = n - 1 if the prompt ends within a block, else none

Since v1 the samples are requests of their own that share full blocks through the prefix cache.

A forked sequence still computes the prompt's last token, for its logits; v0 samples all first
tokens from one computation. It starts when the prompt is computed, and is preempted alone. Copies
are counted in `copied_bytes`, a block each; they take no time.
"""

from typing import TYPE_CHECKING

from kvsim.memory.allocator import MemorySpec
from kvsim.memory.ledger import Course
from kvsim.memory.paged.allocator import PagedAllocator, Table
from kvsim.memory.paged.v0 import PagedV0Allocator
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence

if TYPE_CHECKING:
    from kvsim.memory.paged.options import Paged


class CopyOnWriteAllocator(PagedAllocator):
    """What forks add to a paged allocator.

    A sequence whose last block is shared, or was when it last looked, is in `_forked`: it books no
    slots that will stay empty, since others may fill them.
    """

    def __init__(self, options: "Paged", memory: MemorySpec) -> None:
        super().__init__(options, memory)
        self._families: dict[str, dict[Sequence, None]] = {}  # live samples, by their request
        self._forked: dict[Sequence, None] = {}

    def _prompt_blocks(self, seq: Sequence) -> list[int]:
        """Blocks of the prompt that a member of the family can share with `seq` now: all if `seq`
        is new and one of them has not written behind the prompt, else the full ones.
        """
        prompt, best = seq.prompt_tokens, []
        for other in self._families.get(seq.request.id, ()):
            table: Table = other.memory
            if table.tokens < prompt:
                continue
            if not seq.num_outputs and self._slots_of(other) == prompt:
                return table.blocks[: ceil_div(prompt, self.block_size)]
            best = table.blocks[: prompt // self.block_size]
        return best

    def _slots_of(self, seq: Sequence) -> int:
        table: Table = seq.memory
        return table.base + self._clock if seq.decoding else table.tokens

    # --- admission -----------------------------------------------------------------------------

    def _hit_blocks(self, seq: Sequence) -> list[int]:
        shared = self._prompt_blocks(seq) if seq.request.n > 1 else []
        known = super()._hit_blocks(seq)
        return shared if len(shared) > len(known) else known

    def cached_tokens(self, seq: Sequence) -> int:
        return min(len(self._hit_blocks(seq)) * self.block_size, seq.num_tokens - 1)

    def admit(
        self, seq: Sequence, num_tokens: int, *, cached_tokens: int, reserve_tokens: int, busy: bool
    ) -> bool:
        family = self._families.get(seq.request.id, {})
        if any(other.memory.tokens < seq.prompt_tokens for other in family):
            return False  # the prompt they will share is on its way
        hits = self._hit_blocks(seq)
        if not super().admit(
            seq,
            num_tokens,
            cached_tokens=cached_tokens,
            reserve_tokens=reserve_tokens,
            busy=busy,
        ):
            return False
        if seq.request.n > 1:
            self._families.setdefault(seq.request.id, {})[seq] = None
        rest = seq.prompt_tokens % self.block_size
        if rest and not seq.num_outputs and len(hits) * self.block_size > seq.prompt_tokens:
            self._used_slots += self.block_size - rest  # only so many slots of it are valid
            seq.memory.registered = min(seq.memory.registered, len(hits) - 1)
            for other in family:
                if other.memory.blocks[len(hits) - 1 :] == hits[-1:]:
                    self._fork(other)
            self._fork(seq)
        return True

    def _fork(self, seq: Sequence) -> None:
        if seq not in self._forked:
            self._forked[seq] = None
            self._over_slots -= self._never_filled(seq)

    def _settle_fork(self, seq: Sequence) -> None:
        """The last block of `seq` is its own from now on."""
        del self._forked[seq]
        self._over_slots += self._never_filled(seq)

    def _never_filled(self, seq: Sequence) -> int:
        return max(0, len(seq.memory.blocks) * self.block_size - seq.final_tokens)

    # --- decoding ------------------------------------------------------------------------------

    def _copying(self) -> list[Sequence]:
        """Who writes into a block of several owners in the next step, in running order."""
        return sorted(
            (
                seq
                for seq in self._forked
                if seq.decoding and self.pool.is_shared(seq.memory.blocks[-1])
            ),
            key=lambda seq: seq.order,
        )

    def due(self) -> list[Sequence]:
        copying = self._copying() if self._forked else []
        return sorted({*super().due(), *copying}, key=lambda seq: seq.order)

    def _steps_within(self, blocks: int, limit: int) -> int:
        copies = len(self._copying()) if self._forked else 0
        return super()._steps_within(blocks - copies, limit) if blocks >= copies else 0

    def extend(self, seq: Sequence, num_tokens: int) -> bool:
        if seq in self._forked and num_tokens > seq.prompt_tokens:
            if self.pool.is_shared(seq.memory.blocks[-1]) and not self.pool.num_free:
                return False
            self._write(seq)
        return super().extend(seq, num_tokens)

    def _write(self, seq: Sequence) -> None:
        """The first token behind the prompt needs the last block for `seq` alone."""
        blocks = seq.memory.blocks
        if self.pool.is_shared(blocks[-1]):
            self.pool.drop(blocks[-1])
            blocks[-1:] = self.pool.take(1)
            self._used_slots += seq.prompt_tokens % self.block_size
            self.copied_bytes += self._block_bytes
        self._settle_fork(seq)

    def advance(self, steps: int) -> Course:
        for seq in sorted(self._forked, key=lambda seq: seq.order):
            if seq.decoding:
                self._write(seq)
        return super().advance(steps)

    # --- release -------------------------------------------------------------------------------

    def release(self, seq: Sequence) -> None:
        family = self._families.get(seq.request.id)
        if family is not None:
            del family[seq]
            if not family:
                del self._families[seq.request.id]
        unused = 0
        if seq in self._forked:
            if self.pool.is_shared(seq.memory.blocks[-1]):
                unused = self.block_size - seq.prompt_tokens % self.block_size
            self._settle_fork(seq)
        super().release(seq)
        self._used_slots -= unused  # a shared block counts as full there

    def check(self) -> None:
        self.pool.check(seq.memory.blocks for seq in self._live)
        valid: dict[int, int] = {}
        for seq in self._live:
            for index, block in enumerate(seq.memory.blocks):
                slots = min(self.block_size, self._slots_of(seq) - index * self.block_size)
                valid[block] = max(slots, valid.get(block, 0))
        used = sum(valid.values())
        over = sum(self._never_filled(seq) for seq in self._live if seq not in self._forked)
        if (used, over) != (self._used_slots, self._over_slots):
            raise InvariantError(
                f"{used} used and {over} over-provisioned slots, booked as "
                f"{self._used_slots} and {self._over_slots}"
            )


class CopyOnWriteV0Allocator(PagedV0Allocator, CopyOnWriteAllocator):
    """The same under vLLM v0's rules for blocks."""
