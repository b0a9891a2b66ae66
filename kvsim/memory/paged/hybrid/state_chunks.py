"""The ends of chunks of prompts, which leave recurrent states where later requests can use them.

Between steps a sequence has only the state of its last token, so other requests can reuse states
only where chunks end. Source: vLLM 0.33, v1/core/sched/scheduler.py, `_mamba_block_aligned_split`;
v1/kv_cache_interface.py, `is_mamba_prefill_checkpoint_valid`.
"""

from kvsim.memory.paged.hybrid.checkpoint_rules import CheckpointRules
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence
from kvsim.vllm.sizes import Sizes


class StateChunks:
    """The chunking rule for states in blocks of `sizes.least` tokens.

    checkpoint_alignment: the prefill kernel writes states within a chunk at multiples of this
    number of tokens from its start; None: none. every_chunk: states are written within every chunk,
    not only within the last of a prompt. cuts_at_blocks, stops_at_hits: see BlockRules.
    """

    def __init__(
        self,
        sizes: Sizes,
        places: CheckpointRules,
        checkpoint_alignment: int | None,
        *,
        every_chunk: bool,
        cuts_at_blocks: bool,
        stops_at_hits: bool,
    ) -> None:
        self._size, self._places = sizes.least, places
        self._alignment, self._every_chunk = checkpoint_alignment, every_chunk
        self._at_blocks = cuts_at_blocks
        self._stops = sizes.inner if stops_at_hits else sizes.match < sizes.whole
        self._unit, self._aligned = sizes.match, sizes.aligned

    def leaves_checkpoint(self, seq: Sequence, start: int, end: int) -> bool:
        """Whether a chunk from `start` to `end` also leaves a state at the end of its last whole
        unit.

        True if the kernel can write one, and the state may be cached.
        """
        asked = self._every_chunk or end >= _prefill_end(seq)
        return asked and self._leaves(start, end, end)

    def _leaves(self, start: int, end: int, known: int) -> bool:
        """`leaves_checkpoint` for the last place that a prompt of `known` tokens can be continued
        from.
        """
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
        """Number of tokens in the next chunk.

        The chunk ends at a block end, at the last place that a resent prompt can hit, or before
        `junction`. junction: the shared-prefix boundary, after which `seq` diverges from others, 0
        for none. most_tokens: most tokens of a step; chunks may end inside a block that is longer.
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
    """Number of tokens to prefill. The newest token of a resumed sequence is a decode, so it is not
    counted.
    """
    return max(seq.prompt_tokens, seq.num_tokens - 1)
