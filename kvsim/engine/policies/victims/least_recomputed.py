"""Preempts the sequence with the fewest tokens to recompute; tokens shared with other sequences are
hit again.
"""

from collections.abc import Reversible

from kvsim.engine.policies.victims.victim import Tokens, Victim
from kvsim.sequence import Sequence


class LeastRecomputed(Victim):
    """Preempts the sequence with the fewest computed tokens that no other running sequence shares;
    of equal ones the last admitted.

    Blocks that it leaves in a prefix cache do not count as later hits: memory has run out, so they
    are evicted first.
    """

    def choose(
        self, running: Reversible[Sequence], computed_tokens: Tokens, shared_tokens: Tokens
    ) -> Sequence:
        return min(reversed(running), key=lambda seq: computed_tokens(seq) - shared_tokens(seq))
