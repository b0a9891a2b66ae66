"""Token counts at which a state can be checkpointed (managers/schedule_batch.py,
runtime_context.py).
"""

from math import lcm

MODEL_CHUNK = 64  # tokens after which the kernels of recurrent layers have a state to show


class TrackingGrid:
    """Token counts at which states are checkpointed: multiples of `tokens` while a prompt is
    computed, and of `step` while outputs are.
    """

    def __init__(self, page_size: int, interval: int) -> None:
        self._chunk = max(MODEL_CHUNK, page_size)
        self.tokens = lcm(self._chunk, page_size)
        self.step = lcm(self.tokens, interval)

    def in_chunk(self, begin: int, end: int, branch: int) -> int | None:
        """Token count at which a prompt chunk, tokens `begin` to `end`, checkpoints a state; None:
        at none.

        The last multiple, counted from `begin`; or `branch`, where tree paths diverge, if that
        comes earlier.
        """
        new = end - begin
        if new < self.tokens:
            return None
        last = begin + new // self.tokens * self.tokens
        shown = begin + new // MODEL_CHUNK * MODEL_CHUNK
        limit = end if shown == last else last + 1
        if begin < branch < limit and (branch - begin) % self._chunk == 0:
            return branch
        return last

    def after(self, tokens: int) -> int:
        """The first token count after `tokens` at which decoding checkpoints a state."""
        return self.before(tokens) + self.step

    def before(self, tokens: int) -> int:
        """The last token count, at most `tokens`, at which decoding checkpoints a state."""
        return tokens // self.step * self.step

    def ends_at(self, tokens: int) -> bool:
        """Whether a checkpoint is due after `tokens` tokens."""
        return tokens % self.step == 0
