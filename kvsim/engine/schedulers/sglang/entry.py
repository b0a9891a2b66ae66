"""Record of a request in SGLang's waiting queue: its entry, and the result of its last lookup."""

from kvsim.sequence import Sequence


class QueueEntry:
    """Record of one waiting request. number: position in the order of entry; a request that is
    queued again gets a new one. prefilled_tokens: prompt tokens that the engine had launched at the
    entry. matched: tokens found cached when the policy last looked. tried_tokens, tried_cached:
    tokens of the request, and cached ones, when a pass last tried to admit it; 0 before.
    """

    __slots__ = ("matched", "number", "prefilled_tokens", "tried_cached", "tried_tokens")

    def __init__(self, number: int) -> None:
        self.number = number
        self.prefilled_tokens = self.tried_tokens = self.matched = self.tried_cached = 0

    def tried(self, tokens: int, cached: int) -> None:
        """Note that a pass tries to admit the request: `tokens` tokens, `cached` of them cached."""
        self.tried_tokens, self.tried_cached = tokens, cached

    def work(self, seq: Sequence) -> int:
        """Uncached tokens of the waiting `seq`, at least 1."""
        return max(1, seq.num_tokens - self.matched)
