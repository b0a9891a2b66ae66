"""Preempts the least urgent sequence: vLLM's rule under policy = "priority"."""

from collections.abc import Reversible
from typing import ClassVar

from kvsim.engine.policies.victims.victim import Tokens, Victim
from kvsim.sequence import Sequence


class LowestPriority(Victim):
    """Preempts the sequence with the highest `priority` value (lower runs first); of equal ones the
    last to have arrived, then the first admitted.
    """

    by_priority: ClassVar[bool] = True

    def choose(
        self, running: Reversible[Sequence], computed_tokens: Tokens, shared_tokens: Tokens
    ) -> Sequence:
        return max(running, key=lambda seq: (seq.priority, seq.arrival_ps))
