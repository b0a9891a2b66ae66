"""Preempts the sequence with the fewest tokens to recompute; tokens shared with other sequences are
hit again.
"""

from collections.abc import Reversible

from kvsim.engine.policies.victims.victim import Tokens, Victim
from kvsim.sequence import Sequence


class LeastRecomputed(Victim):
    """The fewest computed tokens that other running sequences do not share; of equal ones the last
    admitted.

    What it leaves in a prefix cache does not count: memory has run out, so that goes first.
    """

    def choose(
        self, running: Reversible[Sequence], computed_tokens: Tokens, shared_tokens: Tokens
    ) -> Sequence:
        return min(reversed(running), key=lambda seq: computed_tokens(seq) - shared_tokens(seq))
