"""How much of what running requests may still put out is held back from newcomers: the new-token
ratio (managers/scheduler_components/new_token_ratio_tracker.py). Floats, in the engine's own order
of operations, so that they are the same to the last bit.
"""

INITIAL = 0.7
FLOOR = 0.14  # of the initial ratio
DECAY_STEPS = 600
RETRACT_STEPS = 20  # decode steps that a retraction makes room for


class NewTokenRatio:
    """value: the ratio now. It falls with every decode step, jumps at a retraction, and begins
    anew when the engine is idle.
    """

    def __init__(self, conservativeness: float) -> None:
        self._initial = min(INITIAL * conservativeness, 1.0)
        self._floor = min(self._initial * FLOOR, 1.0)
        self._decay = (self._initial - self._floor) / DECAY_STEPS
        self.value = self._initial

    def decay(self, steps: int = 1) -> None:
        """Lower the ratio after `steps` decode steps without a retraction. A ratio below the floor
        rises to it.
        """
        for _ in range(steps):
            if self.value == self._floor:
                break
            self.value = max(self.value - self._decay, self._floor)

    def retracted(self, outputs: int, max_new_tokens: int, num: int) -> None:
        """After a retraction `num` requests are left, with so many tokens out and asked for."""
        self.value = min(1.0, (outputs + RETRACT_STEPS * num) / (max_new_tokens + 1))

    def idle(self) -> None:
        """Nothing waits or runs."""
        self.value = self._initial
