"""Where in a prompt a request that repeats it can go on from a kept state."""

from typing import NamedTuple, Self

from kvsim.speculation import Speculation


class Places(NamedTuple):
    """behind: tokens that must follow a place. drops: hits of a drafter's layers end a unit before
    what they know, so that the state is wanted there.
    """

    behind: int = 1
    drops: bool = False

    @classmethod
    def of(cls, speculation: Speculation | None) -> Self:
        """As a drafter's hashes and hits have it."""
        if speculation is None:
            return cls()
        return cls(max(1, speculation.hash_lookahead), speculation.drops_last_block)

    def last(self, tokens: int, unit_tokens: int) -> int:
        """The last place, at a multiple of the unit, in a prompt of so many tokens."""
        if self.drops:
            return max(0, tokens // unit_tokens - 1) * unit_tokens
        return max(0, tokens - self.behind) // unit_tokens * unit_tokens
