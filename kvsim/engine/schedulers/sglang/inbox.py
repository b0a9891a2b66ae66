"""Requests on their way to the scheduler, which looks for them now and then.

With `--scheduler-recv-interval` above 1 a pass looks only after so many steps of decoding; a step
with prompts counts as AFTER_PROMPTS of them (managers/scheduler_recv_skipper.py, 0.5.23).
An idle scheduler looks all the time.
"""

from kvsim.sequence import Sequence

AFTER_PROMPTS = 1000


class Inbox:
    """interval: steps of decoding from one look to the next."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._steps = 0  # since the last look
        self._sent: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def always_open(self) -> bool:
        """Whether every pass looks."""
        return self._interval == 1

    def send(self, seq: Sequence) -> None:
        """`seq` is there for the next look."""
        self._sent.append(seq)

    def steps_to_look(self, limit: int) -> int:
        """How many steps of decoding may follow without a look that finds somebody."""
        return min(limit, self._interval - self._steps - 1) if self._sent else limit

    def decoded(self, steps: int) -> None:
        """So many steps were scheduled whose looks found nobody."""
        self._steps = (self._steps + steps) % self._interval

    def look(self, *, prompts: bool, idle: bool) -> list[Sequence]:
        """A pass begins: who is received. prompts: whether the step before it computed some."""
        self._steps += AFTER_PROMPTS if prompts else 1
        if self._steps < self._interval and not idle:
            return []
        self._steps = 0
        received, self._sent = self._sent, []
        return received
