"""Budget of an SGLang decode engine: whether another prompt can be preallocated.

Each request counts with a fixed number of output tokens, whatever it asks for. In addition one
request must be able to finish if all others are retracted.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kvsim.engine.schedulers.sglang.budget import CLIP_MAX_NEW_TOKENS

BUFFERS = 2  # of metadata on either side, for each request that may run


class BatchMember(NamedTuple):
    """A request of the running batch, including requests that ended with the last step.

    prompt: tokens of its prompt. outputs: output tokens processed so far. wish: its max_new_tokens.
    """

    prompt: int
    outputs: int
    wish: int


class DecodeBudget(NamedTuple):
    """Counts of the running batch, in tokens.

    reserved: output tokens counted for each request. retractable: prompt and output tokens of the
    batch. longest: most tokens that one of its requests may come to hold, prompt and all outputs.
    """

    reserved: int
    retractable: int
    longest: int

    @classmethod
    def of(cls, reserved: int, members: Iterable[BatchMember]) -> "DecodeBudget":
        """The budget for these members of the running batch."""
        retractable = longest = 0
        for prompt, outputs, wish in members:
            retractable += prompt + outputs
            longest = max(longest, min(wish, CLIP_MAX_NEW_TOKENS) + prompt)
        return cls(reserved, retractable, longest)

    def left(self, available: int, active: int) -> int:
        """Tokens left for new prompts. available: free or evictable tokens. active: number of
        requests with allocated prompts.
        """
        single = self.longest - self.retractable if self.longest else 0
        return available - max(self.reserved * active, single)

    def need(self, prompt: int, paged: int, cached: int, wish: int) -> int:
        """Tokens that a new request counts with. paged: its prompt tokens rounded up to pages.
        cached: tokens hit. wish: max_new_tokens.
        """
        outputs = min(wish, CLIP_MAX_NEW_TOKENS)
        return max(paged - cached + self.reserved, prompt - cached + outputs - self.retractable)
