"""Who loses the least work gives way."""

from collections.abc import Callable, Reversible

from kvsim.engine.policies.victims.victim import Victim
from kvsim.sequence import Sequence


class LeastComputed(Victim):
    """The fewest computed tokens; of those alike the last admitted."""

    def choose(
        self, running: Reversible[Sequence], computed_tokens: Callable[[Sequence], int]
    ) -> Sequence:
        return min(reversed(running), key=computed_tokens)
