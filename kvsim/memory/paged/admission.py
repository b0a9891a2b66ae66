"""Prefix cache hits of a waiting sequence, and the free blocks that its admission needs, including
slots for drafts.
"""

from collections import Counter
from collections.abc import Sequence as Row
from dataclasses import dataclass
from typing import Self

from kvsim.memory.allocator import Demand, Refusal
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.block_shape import BlockShape
from kvsim.memory.paged.blocks import NOTHING_FOUND, Table
from kvsim.memory.paged.forks import Forks
from kvsim.memory.paged.group_lookup import Hits
from kvsim.memory.paged.hybrid.state_chunks import StateChunks
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.prefix_cache import PrefixCache
from kvsim.memory.paged.windows import reaches_of, skipped_blocks
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Slots allocated beyond the tokens of a step, for the drafts that follow it; all zero without
    drafts.

    tokens: draft tokens of each sequence. slots: slots beyond those of a step. redrafted: number of
    last tokens with slots that may be written again. depth: steps in flight.
    """

    speculates: bool
    tokens: int
    slots: int
    redrafted: int
    depth: int
    max_model_len: int

    @classmethod
    def of(cls, memory: MemorySpec) -> Self:
        """The lookahead of the drafter of `memory`."""
        drafts, depth, longest = memory.speculation, 1 + memory.hash_lag, memory.max_model_len
        if drafts is None:
            return cls(False, 0, 0, 0, depth, longest)
        slots, redrafted = drafts.lookahead_slots, drafts.redrafted_tokens
        return cls(True, drafts.tokens, slots, redrafted, depth, longest)

    def room(self, num_tokens: int) -> int:
        """Slots to allocate for a step that ends at slot `num_tokens`: those of the next drafts
        included, at most max_model_len.
        """
        return min(num_tokens + self.slots, max(num_tokens, self.max_model_len))

    def final_room(self, final_tokens: int) -> int:
        """`room` for the last step of a sequence when it is scheduled: all drafts in flight count
        as accepted.
        """
        return self.room(min(final_tokens + self.tokens * self.depth, self.max_model_len))

    def unused(self, num_tokens: int, valid_tokens: int) -> int:
        """Allocated slots that are still not valid once the step has returned."""
        return self.room(num_tokens) - valid_tokens if self.speculates else 0


class AdmissionNeeds:
    """Block needs of requests on a paged allocator; changes nothing. Windows include the prompt
    tokens of the steps in flight, as in vLLM's sizing of pools.

    chunks: rule for chunks of prompts that leave a recurrent state; None without states. forks:
    samples that share blocks by copy on write; None without. watermark_blocks: blocks that an
    admission leaves free if other sequences run. most_states: most recurrent states of a sequence
    at once, in each group of recurrent layers. one_table: all layers keep every token in one table.
    """

    def __init__(
        self,
        memory: MemorySpec,
        shape: BlockShape,
        groups: Row[BlockGroup],
        sizes: Sizes,
        pool: BlockPool,
        cache: PrefixCache,
        drafts: Lookahead,
        chunks: StateChunks | None,
        forks: Forks | None,
        watermark_blocks: int,
        most_states: int,
        *,
        one_table: bool,
    ) -> None:
        self._rules, self._shape, self._pool, self._groups = memory.rules, shape, pool, groups
        self._cache, self._drafts, self._chunks, self._forks = cache, drafts, chunks, forks
        self._watermark_blocks, self._one_table = watermark_blocks, one_table
        reaches = reaches_of(groups, states_kept=False)
        self._reach_of = {group.bucket: reach for group, reach in zip(groups, reaches, strict=True)}
        self._max_model_len, self._most_tokens = memory.max_model_len, memory.max_in_flight_tokens
        self._most_states, self._scratch = most_states, drafts.tokens
        # Whether hits end inside a block, which is then copied.
        self._inside = sizes.aligned if sizes.inner else None
        self._unit = sizes.match
        self._blocks = f"blocks of {shape.block_size} tokens"
        if not one_table:
            self._blocks += " in a group of layers"
        # Groups by equal needs of blocks, and the number of groups of each kind.
        kinds = Counter(group.bucket for group in groups)
        first = {group.bucket: group for group in groups}
        self._group_kinds = [(first[kind], times) for kind, times in kinds.items()]

    def refusal(self, request: Request) -> Refusal | None:
        """See `Allocator.refusal`."""
        size, rules = self._shape.block_size, self._rules
        final = self._drafts.final_room(request.final_tokens)
        need, beside = self._of_alone(final), ""
        if rules.watermark_when_idle:
            need += self._watermark_blocks
            beside = " beside its watermark"
        if rules.spare_block and request.output_tokens > 1:
            need = max(need, ceil_div(final - 1, size) + 1)  # for its last step
        return self._shape.refusal(need, self._blocks, beside)

    def hits(self, seq: Sequence) -> Hits:
        """Blocks that `seq` can share: hits of the cache, or the prompt of its fork family."""
        hits = self._cache.hits(seq)
        if self._forks is None or seq.request.n == 1:
            return hits
        shared, size = self._forks.prompt_blocks(seq), self._shape.block_size
        if shared.num * size <= hits.tokens:
            return hits
        return Hits(shared.num * size, (0,), (shared,))

    def host_keys(self, seq: Sequence, hits: Hits) -> list[int]:
        """Keys of content of `seq` in the host tier, following its hits on the device."""
        return self._cache.host_keys(seq, hits.tokens // self._shape.block_size)

    def cached_tokens(self, seq: Sequence) -> int:
        """See `Allocator.cached_tokens`."""
        hits = self.hits(seq)
        tokens = hits.tokens + len(self.host_keys(seq, hits)) * self._shape.block_size
        return min(tokens, seq.num_tokens - 1)

    def leaves_checkpoint(self, seq: Sequence, start: int, end: int) -> bool:
        """Whether a chunk from `start` to `end` takes one more block for a state within it."""
        return self._chunks is not None and self._chunks.leaves_checkpoint(seq, start, end)

    def hits_of_load(self, seq: Sequence, num_tokens: int, cached_tokens: int) -> Hits:
        """Hits that `seq` keeps if its first `num_tokens` tokens are loaded, without blocks to
        which no later token attends. cached_tokens: tokens hit by the lookup; if this exceeds what
        all groups have, only full attention's hits count.
        """
        hits = self.hits(seq)
        if hits.tokens < cached_tokens:
            hits = self._cache.hits_apart(seq)
        if self._one_table or not hits.tokens:
            return hits
        table: Table = seq.memory
        first, found = list(hits.first), list(hits.found)
        for g, group in enumerate(self._groups):
            size = group.block_size
            skipped = skipped_blocks(self._reach_of[group.bucket], num_tokens, size)
            start = min(skipped, hits.tokens // size)
            if found[g].num and not group.state_bytes and start > first[g]:
                runs = table.runs_in(size // self._unit)
                first[g] = start
                found[g] = self._pool.find(g, runs, start, hits.tokens // size)
        return Hits(hits.tokens, first, found, hits.junction)

    def without_states(self, hits: Hits) -> Hits:
        """A copy of `hits` without the blocks of recurrent states."""
        found = [
            NOTHING_FOUND if group.state_bytes else each
            for group, each in zip(self._groups, hits.found, strict=True)
        ]
        return Hits(hits.tokens, hits.first, found, hits.junction)

    def need(
        self,
        seq: Sequence,
        hits: Hits,
        tokens: int,
        *,
        whole: bool,
        busy: bool,
        loaded: int = 0,
        begun: bool = False,
    ) -> int:
        """Free blocks that the admission of `seq` with these hits takes, or requires. whole:
        require blocks for all tokens, even if they are computed chunk by chunk. loaded: number of
        tokens that are hit or loaded, so that they are not computed. begun: the sequence already
        holds its scratch states.
        """
        states = 1 + self.leaves_checkpoint(seq, hits.tokens, tokens)
        scratch = 0 if begun else self._scratch
        watermark = self._watermark_blocks if busy or self._rules.watermark_when_idle else 0
        lookahead = 0 if whole else self._drafts.room(tokens) - tokens
        return watermark + self._of(hits, tokens, (states, scratch), whole, lookahead, loaded)

    def need_of_head(self, head: Sequence, hits: Hits, *, busy: bool) -> int:
        """`need` of the head of the waiting queue, for all its tokens."""
        return self.need(head, hits, head.num_tokens, whole=True, busy=busy)

    def lacks(self, seq: Sequence, hits: Hits, demand: Demand) -> bool:
        """Whether `demand` asks for more blocks than are free."""
        free, busy = self._pool.num_free, demand.busy
        if self._rules.spare_block and demand.swapped_in:
            blocks = ceil_div(demand.cached_tokens, self._shape.block_size)
            if blocks + 1 + self._watermark_blocks > free:
                return True
        if self.need(seq, hits, demand.fit_tokens, whole=True, busy=busy) > free:
            return True
        if self._one_table and self._drafts.room(demand.num_tokens) <= demand.fit_tokens:
            return False  # no step frees blocks of one table: the first need is the larger one
        return self.need(seq, hits, demand.num_tokens, whole=False, busy=busy) > free

    # --- blocks of a sequence at once ------------------------------------------------------------

    def _of_alone(self, tokens: int) -> int:
        """The most blocks that a sequence of `tokens` tokens, computed in chunks, may hold."""
        kinds = self._group_kinds
        need = sum(self._most_blocks(group, tokens) * times for group, times in kinds)
        if self._inside is None:
            return need
        return max(need, sum(self._most_copied(group, tokens) * times for group, times in kinds))

    def _most_copied(self, group: BlockGroup, tokens: int) -> int:
        """`_most_blocks` for a sequence that holds both its last hit block and a private copy of
        it.
        """
        assert self._inside is not None
        most = self._most_blocks(group, tokens)
        if self._inside % group.block_size == 0:
            return most
        if group.state_bytes:
            states = self._most_states - self._scratch
            most = min(ceil_div(tokens, group.block_size), states) + self._scratch
        return most + 1

    def _most_blocks(self, group: BlockGroup, tokens: int) -> int:
        """The most blocks that a layer group needs at once for a sequence of `tokens` tokens."""
        if group.state_bytes:
            return self._most_states
        reach = self._reach_of[group.bucket]
        if reach is None or self._most_tokens is None:
            return ceil_div(tokens, group.block_size)
        most = self._max_model_len - reach.kept_tokens
        return group.blocks_at_once(tokens, min(self._drafts.redrafted + self._most_tokens, most))

    def _of(
        self,
        hits: Hits,
        tokens: int,
        states: tuple[int, int],
        whole: bool,
        lookahead: int,
        loaded: int,
    ) -> int:
        """Free blocks that a sequence with these hits takes for its first `tokens` tokens. states:
        number of table positions for states that are kept, and number for drafts' scratch states.

        whole: all tokens are computed chunk by chunk, so that windows free blocks meanwhile.
        lookahead: slots for drafts after the tokens; no states are taken for them. loaded: number
        of tokens that are not computed; window groups then need blocks only for the window that
        ends there.
        """
        need = 0
        for group, times in self._group_kinds:
            size, hit = group.block_size, ceil_div(hits.tokens, group.block_size)
            most = ceil_div(tokens + lookahead, size)
            if group.state_bytes:  # however many it computes
                most = min(ceil_div(tokens, size), hit + states[0]) + states[1]
            elif whole:
                most = self._most_blocks(group, tokens)
                if loaded:
                    hit = max(hit, skipped_blocks(self._reach_of[group.bucket], loaded, size))
            copied = hits.tokens % size > 0  # the last hit block
            need += (max(most - hit, 0) + copied) * times
        if hits.tokens:
            need += sum(map(self._pool.num_free_of, hits.found))
        return need
