"""An observer that recounts why blocks are cached, from the tables that held each block last."""

from collections import Counter
from collections.abc import Sequence

from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.blocks import BLANK
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.parts import PARTS, bytes_by_name
from kvsim.vllm.grouping import BlockGroup
from support.auditor import Auditor

# The block with a prompt's end, a slot short of full: whoever has had its turn in the step in which
# it gives way has filled that, and the block counts as an output's.
EITHER = "prompt, or cached_outputs"


def cached_blocks(pool: BlockPool) -> list[int]:
    """The free blocks whose content may still be hit."""
    waiting = [extent for extent in pool.waiting() if extent.key != BLANK]
    return [block for extent in waiting for block in extent.blocks]


def _unseen(group: BlockGroup) -> str:
    """Why a block of this group is cached that was in no table at any event. It is a copy of a
    state, or it was allocated and freed within one plan by a preempted sequence.
    """
    if group.kind == "recurrent":
        return "cached_states"
    return EITHER if group.window_tokens is None else "cached_windows"


class ReasonAuditor(Auditor):
    """Audits a run of single steps, so that every block is seen in the table that holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()  # events at which some block was cached for this
        self._last: dict[int, str] = {}

    def taken(self, blocks: Sequence[int]) -> None:
        """Forget blocks that are allocated; their tables are read at the next event."""
        for block in blocks:
            self._last.pop(block, None)

    def revived(self, blocks: Sequence[int]) -> None:
        """Note blocks that are hit: they are in the prompt of some sequence."""
        for block in blocks:
            if self._last.get(block) in ("cached_outputs", EITHER):
                self._last[block] = "prompt"

    def freed(self, cached: Sequence[int], blank: Sequence[int]) -> None:
        """Nothing to note: the tables of these blocks have been read before."""

    def _audit(self, scheduler: Scheduler) -> None:
        super()._audit(scheduler)
        allocator = scheduler.allocator
        assert isinstance(allocator, PagedAllocator)
        states = self._look(allocator)
        pool = allocator.pool
        pool.listener = self
        unseen = [_unseen(group) for group in allocator._tables.groups]
        waiting = (extent for extent in pool.waiting() if extent.key != BLANK)
        cached = Counter(
            self._last.get(block, unseen[extent.group])
            for extent in waiting
            for block in extent.blocks
        )
        assert sum(cached.values()) == pool.num_cached_free
        either = cached.pop(EITHER, 0)
        self.seen.update(cached.keys())
        parts = bytes_by_name(allocator.parts)
        size = allocator.block_bytes
        others = {name: cached[name] * size for name in PARTS if name.startswith("cached")}
        found = {name: parts[name] for name in (*others, "states")}
        if either:
            filled = found["cached_outputs"] - others["cached_outputs"]
            assert filled in range(0, either * size + 1, size)
            others["cached_outputs"] += filled
        assert found == {**others, "states": states}

    def _look(self, allocator: PagedAllocator) -> int:
        """Note for each held block the kind of its content; returns the bytes of held states."""
        if allocator.one_table:
            for seq in allocator._live.seqs:
                prompt = seq.prompt_tokens // allocator.block_size
                for place, block in enumerate(allocator.blocks_of(seq)):
                    self._last[block] = "prompt" if place < prompt else "cached_outputs"
            return 0
        tables, state_bytes = allocator._tables, 0
        slots = allocator._decoding.decoders.slots
        for g, group in enumerate(tables.groups):
            states: set[int] = set()
            for seq in allocator._live.seqs:
                tokens, start = slots(seq), seq.memory.skipped[g]
                held = list(enumerate(seq.memory.lists[g], start=start))
                if tables._singly[g] and g in tables.shapes.placed:
                    parts = seq.memory.parts[g]
                    held = [(place, block) for place, e, _ in parts for block in e.blocks]
                for place, block in held:
                    if group.kind == "recurrent":
                        why = "cached_states"
                        states.add(block)
                    elif group.window_tokens is not None:
                        why = "cached_windows"
                    else:
                        end, size = seq.prompt_tokens, group.block_size
                        partly = place * size < end and tokens < (place + 1) * size
                        whole = (place + 1) * size <= end
                        why = "prompt" if whole or partly else "cached_outputs"
                        if partly and not whole and tokens + 1 == (place + 1) * size:
                            why = EITHER
                    self._last[block] = why
            state_bytes += len(states) * group.state_bytes
        return state_bytes
