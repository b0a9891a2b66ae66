"""Where in a prompt a request that repeats it can go on from a kept state."""

from typing import NamedTuple, Self

from kvsim.memory.block_rules import BlockRules
from kvsim.speculation import Speculation


class Places(NamedTuple):
    """behind: tokens that must follow a place. drops: hits of a drafter's layers end a unit before
    what they know, so that the state is wanted there.
    """

    behind: int = 1
    drops: bool = False

    @classmethod
    def of(cls, rules: BlockRules, speculation: Speculation | None) -> Self:
        """As the engine's version and a drafter's hashes and hits have it."""
        behind = int(rules.counts_last_token)
        if speculation is None:
            return cls(behind)
        return cls(max(behind, speculation.hash_lookahead), speculation.drops_last_block)

    def last(self, tokens: int, unit_tokens: int) -> int:
        """The last place, at a multiple of the unit, in a prompt of so many tokens."""
        if self.drops:
            return max(0, tokens // unit_tokens - 1) * unit_tokens
        return max(0, tokens - self.behind) // unit_tokens * unit_tokens
