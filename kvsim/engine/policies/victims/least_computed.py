"""Preempts the sequence with the fewest computed tokens."""

from collections.abc import Reversible

from kvsim.engine.policies.victims.victim import Tokens, Victim
from kvsim.sequence import Sequence


class LeastComputed(Victim):
    """Preempts the sequence with the fewest computed tokens; of equal ones the last admitted."""

    def choose(
        self, running: Reversible[Sequence], computed_tokens: Tokens, shared_tokens: Tokens
    ) -> Sequence:
        return min(reversed(running), key=computed_tokens)
