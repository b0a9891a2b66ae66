"""Keys of content that ends inside a block, for blocks longer than the unit of a key (hash block).

Full attention is registered up to the last whole unit of a prompt, wherever in a block it ends. A
state is registered where a chunk ended, and at a checkpoint within the chunk. vLLM 0.33,
v1/core/single_type_kv_cache_manager.py, `_cache_partial_tail_block`.
"""

from collections.abc import Sequence

from kvsim.memory.paged.blocks import Extent, Table
from kvsim.memory.paged.group_lookup import Kind, key_of
from kvsim.memory.paged.hybrid.checkpoint_rules import CheckpointRules
from kvsim.memory.paged.hybrid.retention import Retention
from kvsim.memory.paged.pool import BlockPool
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.sizes import Sizes


class Inside:
    """The part of `BlockNames` for keys inside blocks, with the same parameters. drafts: whether
    speculative decoding is on.

    If hits end only at block ends, a key inside a block is never looked up. Its only use is with
    drafts: the content after the last token with a key is then identified by it.
    """

    def __init__(
        self,
        pool: BlockPool,
        kinds: Sequence[Kind],
        sizes: Sizes,
        places: CheckpointRules,
        retention: Sequence[Retention | None],
        in_step: set[tuple[int, int]],
        *,
        redrafted: int,
        drafts: bool,
    ) -> None:
        self._redrafted = redrafted
        self._pool, self._sizes, self._places = pool, sizes, places
        self._in_step = in_step
        self._tails = [
            kind
            for kind in kinds
            if kind.full and kind.block_size > sizes.match and (sizes.inner or drafts)
        ]
        self._states = [
            (g, retained)
            for kind, retained in zip(kinds, retention, strict=True)
            if kind.recurrent and retained is not None
            for g in kind.members
        ]

    def name_tails(self, table: Table, tokens: int, hashed_tokens: int) -> None:
        """Register the partly filled block at the end of a prompt. tokens: computed tokens;
        hashed_tokens: tokens with keys.
        """
        unit = self._sizes.match
        for kind in self._tails:
            size = kind.block_size
            # All tokens of a prompt if a hit loses its last unit.
            limit = table.prompt_tokens - (self._places.counts_drops and not kind.drops)
            tail = min(limit, hashed_tokens) // unit * unit
            known = self._sizes.cacheable(tokens, size, drops=kind.drops, redrafted=self._redrafted)
            if tail % size and 0 < tail <= known:
                for g in kind.members:
                    block = table.block_at(g, tail // size)
                    assert block is not None
                    self._pool.name(block, key_of(table, tail, size, unit))

    def name(self, table: Table, *, checkpoint: bool) -> None:
        """Register the partly filled block at the end of a chunk, the table's last slot.
        checkpoint: the chunk leaves a state.
        """
        self.name_tails(table, table.tokens, len(table.runs) * self._sizes.match)
        last = self._places.tail(table.prompt_tokens, self._sizes.match)
        for g, retention in self._states:
            size = self._sizes.blocks[g]
            if checkpoint:
                self._name_checkpoint(table, g, retention)
            elif self._sizes.cacheable(table.tokens, size, drops=False) == last > 0:
                if not (last % size or self._places.behind):
                    continue
                block = table.block_at(g, ceil_div(last, size) - 1)
                if block is not None and self._name_state(table, g, block, last) and last % size:
                    table.copied[g] = block

    def _name_state(self, table: Table, g: int, block: Extent, tokens: int) -> bool:
        """Register the state after `tokens` tokens in `block`, in place of its earlier keys; False:
        already cached elsewhere.
        """
        key = key_of(table, tokens, self._sizes.blocks[g], self._sizes.match)
        if block.key == key:
            return False
        self._forget(g, block)
        self._pool.name(block, key)
        self._in_step.add((key, g))
        return True

    def _name_checkpoint(self, table: Table, g: int, retention: Retention) -> None:
        """Cache the block before that of the running state; it has the state at the last checkpoint
        in the chunk.

        The checkpoint must be the prompt's end, the shared-prefix boundary or retained.
        """
        aligned, size = self._sizes.aligned, self._sizes.blocks[g]
        at = self._places.last(table.tokens, aligned)
        block = table.block_at(g, ceil_div(table.tokens, size) - 2)
        assert block is not None
        retained = not at % size and retention.kept(at // size - 1, at // size, ())
        last = self._places.tail(table.prompt_tokens, aligned)
        if retained or at in (last, table.junction_tokens):
            self._name_state(table, g, block, at)
            return
        self._pool.num_evicted += self._forget(g, block)

    def _forget(self, g: int, block: Extent) -> bool:
        """Remove the keys of a block; returns whether it had any."""
        keys = self._pool.forget(block)
        self._in_step.difference_update((key, g) for key in keys)
        return bool(keys)
