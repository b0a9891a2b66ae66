"""Budget of an SGLang decode engine: tokens held back before it preallocates another prompt.

Each request counts with a fixed number of tokens for its output, whatever it asks for. In addition
one request must be able to end if all others are retracted.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kvsim.engine.schedulers.sglang.budget import CLIP_MAX_NEW_TOKENS

BUFFERS = 2  # of metadata on either side, for each request that may run


class BatchMember(NamedTuple):
    """A request of the running batch, including requests that ended with the last step.

    wish: tokens that it may put out. outputs: of them, those that have returned.
    """

    prompt: int
    outputs: int
    wish: int


class DecodeBudget(NamedTuple):
    """reserved: tokens held back for each request. retractable: tokens of the running batch.
    longest: the most that one of the batch may come to hold, its prompt and all its outputs.
    """

    reserved: int
    retractable: int
    longest: int

    @classmethod
    def of(cls, reserved: int, members: Iterable[BatchMember]) -> "DecodeBudget":
        """The budget given these members of the running batch."""
        retractable = longest = 0
        for prompt, outputs, wish in members:
            retractable += prompt + outputs
            longest = max(longest, min(wish, CLIP_MAX_NEW_TOKENS) + prompt)
        return cls(reserved, retractable, longest)

    def left(self, available: int, active: int) -> int:
        """Tokens that may be promised. available: free or evictable. active: requests with room."""
        single = self.longest - self.retractable if self.longest else 0
        return available - max(self.reserved * active, single)

    def need(self, prompt: int, paged: int, cached: int, wish: int) -> int:
        """Tokens that a new request is counted with. paged: its prompt in whole pages."""
        outputs = min(wish, CLIP_MAX_NEW_TOKENS)
        return max(paged - cached + self.reserved, prompt - cached + outputs - self.retractable)
