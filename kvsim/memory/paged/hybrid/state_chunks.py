"""Where chunks of prompts end, so that recurrent states are kept where they are of use.

Between steps a sequence has but the state it ended with, so what others can continue from is
decided by where its chunks end (vLLM 0.33, v1/core/sched/scheduler.py,
`_mamba_block_aligned_split`; v1/kv_cache_interface.py, `is_mamba_prefill_checkpoint_valid`).
"""

from kvsim.memory.paged.hybrid.checkpoint_rules import CheckpointRules
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence
from kvsim.vllm.sizes import Sizes


class StateChunks:
    """For states in blocks of `sizes.least` tokens. checkpoint_alignment: the prefill kernel writes
    a state out within a chunk, so many tokens or a multiple behind its start; None: it cannot.
    every_chunk: it does so in every chunk, not in a prompt's last alone. cuts_at_blocks,
    stops_at_hits: see BlockRules.
    """

    def __init__(
        self,
        sizes: Sizes,
        places: CheckpointRules,
        checkpoint_alignment: int | None,
        *,
        every_chunk: bool,
        cuts_at_blocks: bool = True,
        stops_at_hits: bool = True,
    ) -> None:
        self._size, self._places = sizes.least, places
        self._alignment, self._every_chunk = checkpoint_alignment, every_chunk
        self._at_blocks = cuts_at_blocks
        self._stops = sizes.inner if stops_at_hits else sizes.match < sizes.whole
        self._unit, self._aligned = sizes.match, sizes.aligned

    def leaves_checkpoint(self, seq: Sequence, start: int, end: int) -> bool:
        """Whether a chunk of these tokens leaves a state at the last unit's end inside it too:
        where the kernel can write one out, and that of this chunk may be kept.
        """
        asked = self._every_chunk or end >= _prefill_end(seq)
        return asked and self._leaves(start, end, end)

    def _leaves(self, start: int, end: int, known: int) -> bool:
        """The same where the state that is asked for is the last before `known` tokens."""
        if self._alignment is None:
            return False
        size, unit = self._size, self._unit
        at = self._places.last(known, self._aligned)
        return (
            start % unit == 0
            and ceil_div(end, size) - 2 > (start - 1) // size
            and start + unit <= at < end
            and (at - start) % self._alignment == 0
        )

    def cut(
        self, seq: Sequence, start: int, new_tokens: int, most_tokens: int, junction: int
    ) -> int:
        """How many of these tokens the next chunk computes: up to a block end, up to the last one
        that a resent prompt can hit (and before it the last that is a block's end), and up to the
        last before `junction`, the token where `seq` was seen to part from others (0: nowhere).
        most_tokens: what a step could compute at most; where a block is longer than that, chunks go
        on within it.
        """
        size, end, prefill_end = self._size, start + new_tokens, _prefill_end(seq)
        if start >= prefill_end:
            return new_tokens
        if not self._at_blocks:
            last = self._places.last(seq.num_tokens, size)
            if end < last:
                return new_tokens // size * size
            return last - start if start < last else new_tokens
        if end < prefill_end:
            aligned = end // size * size
            if aligned > start or size <= most_tokens:
                end = aligned
        stops = []
        whole = start + new_tokens
        if whole < prefill_end or not self._leaves(start, whole, prefill_end):
            stops.append(self._places.last(seq.num_tokens, size))
            tail = self._places.tail(seq.prompt_tokens, self._unit)
            if self._stops and stops[0] < tail < seq.prompt_tokens:
                stops.append(tail)
            if start % size:
                stops.append((start // size + 1) * size)
        if start < junction < end:
            stops.append(start + (junction - start) // size * size)
        end = min((stop for stop in stops if start < stop < end), default=end)
        return max(end - start, 0)


def _prefill_end(seq: Sequence) -> int:
    """Where the computing of what is known ends: the newest token of a resumed one is a decode."""
    return max(seq.prompt_tokens, seq.num_tokens - 1)
