"""Requests sent to the scheduler and not received yet.

With `--scheduler-recv-interval` above 1 the scheduler receives requests only after so many decode
steps; a step with prompts counts as AFTER_PROMPTS of them (managers/scheduler_recv_skipper.py,
0.5.23). An idle scheduler receives in every pass.
"""

from kvsim.sequence import Sequence

AFTER_PROMPTS = 1000


class Inbox:
    """interval: decode steps from one receive to the next."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._steps = 0  # since the last receive
        self._sent: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def always_open(self) -> bool:
        """Whether every pass receives requests."""
        return self._interval == 1

    def send(self, seq: Sequence) -> None:
        """Send `seq` to the scheduler."""
        self._sent.append(seq)

    def steps_to_receive(self, limit: int) -> int:
        """Number of decode steps, at most `limit`, before a request is received."""
        return min(limit, self._interval - self._steps - 1) if self._sent else limit

    def decoded(self, steps: int) -> None:
        """`steps` decode steps were scheduled in which no request was received."""
        self._steps = (self._steps + steps) % self._interval

    def receive(self, *, prompts: bool, idle: bool) -> list[Sequence]:
        """The requests received in a new pass. prompts: whether the step before computed
        prompts.
        """
        self._steps += AFTER_PROMPTS if prompts else 1
        if self._steps < self._interval and not idle:
            return []
        self._steps = 0
        received, self._sent = self._sent, []
        return received
