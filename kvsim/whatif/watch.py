"""Observer of a run for a what-if tool: causes of waiting in the queue, and preemptions."""

from typing import NamedTuple

from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.plumbing.options import Options
from kvsim.request import Request

# A twentieth. Of waiting, of recomputing, of prompts that could have been found: what is less does
# not show beside what a simulation of a server is wrong by (means of served runs are met within 1.5
# to some 10 %), nor on anybody's dashboard.
SUBSTANTIAL = 0.05


class Preempted(NamedTuple):
    """One preemption. time_ps: when, in picoseconds. outputs: output tokens that the victim had.
    computed: KV slots that it lost.
    """

    time_ps: int
    outputs: int
    computed: int


class QueueWaits(NamedTuple):
    """The causes for which the head of the waiting queue was not admitted, as shares of the time
    that requests spent in the engine.

    limit: max_num_seqs were running. memory: the pool had no room for it. holes: the pool had the
    room, but not in one place. step: the step had no tokens left (max_num_batched_tokens).

    Causes for which other requests in the queue were skipped: adapters: max_loras adapters were
    running. encoder: its budget or cache had no room for an item. loads: content on its way from a
    tier.
    """

    limit: float = 0.0
    memory: float = 0.0
    holes: float = 0.0
    step: float = 0.0
    adapters: float = 0.0
    encoder: float = 0.0
    loads: float = 0.0

    @property
    def total(self) -> float:
        """The share for all causes together."""
        return sum(self)


class QueueWatch(Observer):
    """The queue of one run. options: of its scheduler, with the limits that explain a wait.

    waited_ps: requests * ps in the queue, by the fields of QueueWaits. preempted: preemptions in
    order. longest: the most requests that waited, and since when (ps).
    """

    def __init__(self, options: Options) -> None:
        self._most_seqs: int | None = getattr(options, "max_num_seqs", None)
        self._most_tokens: int | None = getattr(options, "max_num_batched_tokens", None)
        self.waited_ps = dict.fromkeys(QueueWaits._fields, 0)
        self.preempted: list[Preempted] = []
        self.longest = 0, 0
        self._since_ps, self._waiting, self._why = 0, 0, "step"
        self._passed_by: dict[str, int] = {}

    def arrived(self, scheduler: Scheduler, request: Request, now_ps: int) -> None:
        """Count the wait so far; one more request waits, for the cause of those before it."""
        self._count(scheduler, now_ps)

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """Count the wait so far. Until the next plan, requests wait for the cause that ended the
        admissions of this step.
        """
        for seq in plan.preempted:
            self.preempted.append(Preempted(now_ps, seq.num_outputs, seq.num_computed))
        self._count(scheduler, now_ps)
        if self._waiting:
            if isinstance(scheduler, ContinuousScheduler):
                self._passed_by = scheduler.admission.passed_by()
            self._why = self._reason(scheduler, plan)
            if self._waiting > self.longest[0]:
                self.longest = self._waiting, now_ps

    def waits(self, whole_ps: int) -> QueueWaits:
        """The waits as shares of `whole_ps` picoseconds."""
        if not whole_ps:
            return QueueWaits()
        return QueueWaits(**{name: total / whole_ps for name, total in self.waited_ps.items()})

    def _count(self, scheduler: Scheduler, now_ps: int) -> None:
        past_ps, rest = now_ps - self._since_ps, self._waiting
        for why, count in self._passed_by.items():
            apart = min(count, rest)
            self.waited_ps[why] += apart * past_ps
            rest -= apart
        self.waited_ps[self._why] += rest * past_ps
        self._since_ps, self._waiting = now_ps, len(scheduler.waiting)
        if not self._waiting:
            self._passed_by = {}

    def _reason(self, scheduler: Scheduler, plan: Plan) -> str:
        if self._most_seqs is not None and len(scheduler.running) >= self._most_seqs:
            return "limit"
        if self._most_tokens is not None and plan.new_tokens >= self._most_tokens:
            return "step"
        if sum(self._passed_by.values()) >= self._waiting:
            return "step"  # whoever comes now waits for the next one
        return "holes" if scheduler.usage().external else "memory"


class QueueWatches:
    """The queues of several engines with these options of their scheduler; called for each one."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._watches: list[QueueWatch] = []

    def __call__(self, number: int) -> QueueWatch:
        watch = QueueWatch(self._options)
        self._watches.append(watch)
        return watch

    def waits(self, whole_ps: int) -> QueueWaits:
        """The waits of all together, as shares of `whole_ps` picoseconds."""
        shares = [each.waits(whole_ps) for each in self._watches]
        return QueueWaits(*map(sum, zip(*shares, strict=True)))
