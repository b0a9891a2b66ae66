"""The places in a prompt from which a request that repeats it can continue."""

from typing import NamedTuple, Self

from kvsim.speculation import Speculation
from kvsim.vllm.rules import BlockRules


class CheckpointRules(NamedTuple):
    """Rules of an engine version for where a repeated prompt can continue from.

    behind: number of tokens that must follow such a place. drops: hits end one unit before the last
    cached one, for a drafter's layers, so the state there is needed. counts_drops: see BlockRules.
    """

    behind: int = 1
    drops: bool = False
    counts_drops: bool = True

    @classmethod
    def of(cls, rules: BlockRules, speculation: Speculation | None) -> Self:
        """The rules of the engine's version with this drafter."""
        behind = int(rules.counts_last_token)
        if speculation is None:
            return cls(behind)
        behind = max(behind, speculation.hash_lookahead)
        return cls(behind, speculation.drops_last_block, rules.counts_drops)

    def last(self, tokens: int, unit_tokens: int) -> int:
        """The last place to continue from, a multiple of unit_tokens, in a prompt of `tokens`
        tokens.
        """
        if self.drops:
            return max(0, tokens // unit_tokens - 1) * unit_tokens
        return max(0, tokens - self.behind) // unit_tokens * unit_tokens

    def tail(self, prompt_tokens: int, unit_tokens: int) -> int:
        """Number of prompt tokens with a key when the prompt ends inside a block."""
        places = self if self.counts_drops else self._replace(drops=False)
        return places.last(prompt_tokens, unit_tokens)
