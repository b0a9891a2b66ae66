"""Where chunks of prompts end, so that recurrent states are kept where they are of use.

Between steps a sequence has but the state it ended with, so what others can continue from is
decided by where its chunks end (vLLM 0.33, v1/core/sched/scheduler.py,
`_mamba_block_aligned_split`; v1/kv_cache_interface.py, `is_mamba_prefill_checkpoint_valid`).
"""

from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence
from kvsim.speculation import Speculation


class StateChunks:
    """For states in blocks of `block_size` tokens. checkpoint_alignment: the prefill kernel writes
    a state out within a chunk, so many tokens or a multiple behind its start; None: it cannot.
    speculation: of a drafter, whose layers may take hits a block less far, or hashes further.
    """

    def __init__(
        self,
        block_size: int,
        checkpoint_alignment: int | None,
        speculation: Speculation | None = None,
    ) -> None:
        self._size = block_size
        self._drops = speculation is not None and speculation.drops_last_block
        self._behind = max(1, 0 if speculation is None else speculation.hash_lookahead)
        self._alignment = checkpoint_alignment

    def _last_place(self, tokens: int) -> int:
        """The last block end that a request with these tokens can hit."""
        size = self._size
        if self._drops:
            return max(0, tokens // size * size - size)
        return max(0, tokens - self._behind) // size * size

    def leaves_checkpoint(self, seq: Sequence, start: int, end: int) -> bool:
        """Whether a chunk of these tokens leaves a state at the last block end inside it too: where
        the kernel can write one out, and the chunk is the prompt's last.
        """
        size = self._size
        if self._alignment is None or end < _prefill_end(seq):
            return False
        at = self._last_place(end)
        return (
            start % size == 0
            and ceil_div(end, size) - 2 > (start - 1) // size
            and start + size <= at < end
            and (at - start) % self._alignment == 0
        )

    def cut(
        self, seq: Sequence, start: int, new_tokens: int, most_tokens: int, junction: int
    ) -> int:
        """How many of these tokens the next chunk computes: up to a block end, up to the last one
        that a resent prompt can hit, and up to the last before `junction`, the token where `seq`
        was seen to part from others (0: nowhere). most_tokens: what a step could compute at most;
        where a block is longer than that, chunks go on within it.
        """
        size, end, prefill_end = self._size, start + new_tokens, _prefill_end(seq)
        if start >= prefill_end:
            return new_tokens
        if end < prefill_end:
            aligned = end // size * size
            if aligned > start or size <= most_tokens:
                end = aligned
        stops = []
        if not self.leaves_checkpoint(seq, start, start + new_tokens):
            stops.append(self._last_place(seq.num_tokens))
            if start % size:
                stops.append((start // size + 1) * size)
        if start < junction < end:
            stops.append(start + (junction - start) // size * size)
        end = min((stop for stop in stops if start < stop < end), default=end)
        return max(end - start, 0)


def _prefill_end(seq: Sequence) -> int:
    """Where the computing of what is known ends: the newest token of a resumed one is a decode."""
    return max(seq.prompt_tokens, seq.num_tokens - 1)
