"""Preempted sequences whose newest token is in flight over the stages of a pipeline.

The first stage waits for tokens that a later step may continue from (vLLM 0.33,
v1/worker/gpu/pp_utils.py `get_prev_sampled_outputs`). It hears of a preemption with the step that
preempts, but looks for tokens before it frees the victim. So only later steps do not wait.
"""

from kvsim.engine.plan import Plan
from kvsim.sequence import Sequence


class Abandoned:
    """The plans of victims of the newest step, each to be told once."""

    def __init__(self) -> None:
        self._plans: list[Plan] = []

    def add(self, victim: Sequence, newest: Plan) -> None:
        """The newest step preempts `victim`, whose last plan in flight is `newest`."""
        if newest.continues_with(victim):
            self._plans.append(newest)

    def tell(self) -> None:
        """A further step begins: nothing waits for the tokens of victims before it."""
        for plan in self._plans:
            plan.abandoned += 1
        self._plans.clear()
