"""When a request entered the waiting queue of SGLang, and what was found when it was last tried."""

from kvsim.sequence import Sequence


class QueueEntry:
    """number: rank of its entry among all entries, again at each re-entry. prefilled_tokens: prompt
    tokens that the engine had launched by then. matched: tokens found in the prefix cache when the
    policy last looked. tried_tokens, tried_cached: its tokens, and the cached ones, when a pass
    last tried to admit it; 0 before.
    """

    __slots__ = ("matched", "number", "prefilled_tokens", "tried_cached", "tried_tokens")

    def __init__(self, number: int) -> None:
        self.number = number
        self.prefilled_tokens = self.tried_tokens = self.matched = self.tried_cached = 0

    def tried(self, tokens: int, cached: int) -> None:
        """Note that a pass tries it, with `tokens` tokens of which `cached` are cached."""
        self.tried_tokens, self.tried_cached = tokens, cached

    def work(self, seq: Sequence) -> int:
        """Tokens of the waiting `seq` that are not cached, at least one."""
        return max(1, seq.num_tokens - self.matched)
