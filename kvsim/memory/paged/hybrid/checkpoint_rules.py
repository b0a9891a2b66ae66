"""Where in a prompt a request that repeats it can go on from a kept state."""

from typing import NamedTuple, Self

from kvsim.speculation import Speculation
from kvsim.vllm.rules import BlockRules


class CheckpointRules(NamedTuple):
    """behind: tokens that must follow a place. drops: hits of a drafter's layers end a unit before
    what they know, so that the state is wanted there. counts_drops: see BlockRules.
    """

    behind: int = 1
    drops: bool = False
    counts_drops: bool = True

    @classmethod
    def of(cls, rules: BlockRules, speculation: Speculation | None) -> Self:
        """As the engine's version and a drafter's hashes and hits have it."""
        behind = int(rules.counts_last_token)
        if speculation is None:
            return cls(behind)
        behind = max(behind, speculation.hash_lookahead)
        return cls(behind, speculation.drops_last_block, rules.counts_drops)

    def last(self, tokens: int, unit_tokens: int) -> int:
        """The last place, at a multiple of the unit, in a prompt of so many tokens."""
        if self.drops:
            return max(0, tokens // unit_tokens - 1) * unit_tokens
        return max(0, tokens - self.behind) // unit_tokens * unit_tokens

    def tail(self, prompt_tokens: int, unit_tokens: int) -> int:
        """The place at which a prompt is known inside a block."""
        places = self if self.counts_drops else self._replace(drops=False)
        return places.last(prompt_tokens, unit_tokens)
