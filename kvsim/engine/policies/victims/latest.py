"""Preempts the sequence admitted last: the rule of vLLM under fcfs, and of most engines."""

from collections.abc import Reversible

from kvsim.engine.policies.victims.victim import Tokens, Victim
from kvsim.sequence import Sequence


class Latest(Victim):
    """Preempts the sequence that was admitted last."""

    def choose(
        self, running: Reversible[Sequence], computed_tokens: Tokens, shared_tokens: Tokens
    ) -> Sequence:
        return next(iter(reversed(running)))
