"""vLLM's scheduler with a KV connector (v1/core/sched/scheduler.py, 0.33): its steps, what their
outputs bring, and sequences that leave.
"""

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from kvsim.engine.connectors.connector import Connector, Decided, Report
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.awaiting import AwaitingScheduler
from kvsim.engine.schedulers.connected_device import ConnectedDevice
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.stuck import no_room_for_item
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class ConnectedScheduler(AwaitingScheduler):
    """overlaps: a step is scheduled before the previous one has returned. kept: finished sequences
    with blocks that the connector still needs.
    """

    def __init__(self, parts: ContinuousParts, connector: Connector, *, overlaps: bool) -> None:
        super().__init__(parts, connector)
        self.device = ConnectedDevice(self._blocks, self._computed_tokens, self.batch)
        connector.attach(self.device)
        self.kept: dict[Sequence, None] = {}
        self._overlaps = overlaps
        self._defers_frees = overlaps and connector.loads
        self._drops_outputs = overlaps and not connector.loads
        self._last: Plan | None = None
        self._stuck = False  # the step of a victim is in flight, so no sequence was preempted

    # --- a step ---------------------------------------------------------------------------------

    def schedule(self) -> Plan:
        self.loads, self.put_off, self.found = [], [], []
        self._stuck = False
        plan = super().schedule()
        stepping = self._stepping(plan)
        self.device.scheduled(plan, stepping)
        admitted = tuple(seq for seq, _, _ in plan.admitted)
        running = tuple(self.running)
        step = Decided(plan, running, tuple(stepping), tuple(self.loads), admitted)
        self.connector.scheduled(step)
        if self._overlaps:
            self._last = plan
            self.device.in_flight = stepping
        return plan

    def _stepping(self, plan: Plan) -> dict[Sequence, int]:
        """Sequences of this step, in order, each with the tokens that it puts out."""
        samples = {chunk.seq: chunk.samples for chunk in plan.chunks}
        passed, members = set(plan.passed_over), set(plan.finishing)
        found: dict[Sequence, int] = {}
        for seq in self.running:
            if seq in samples:
                found[seq] = int(samples[seq])
            elif seq not in passed and (seq.decoding or seq in members):
                found[seq] = 1
        return found

    def _preempt_until(self, took: Callable[[], bool], seq: Sequence, plan: Plan) -> bool:
        """As without a connector, up to a victim whose step is in flight: its blocks are not freed,
        so that the sequence finds no room in this step.
        """
        if not self._defers_frees:
            return super()._preempt_until(took, seq, plan)
        while True:
            if self._choose_victim(self.running) in self.device.in_flight:
                self._stuck = True
                return False
            if not super()._preempt_until(lambda: True, seq, plan):
                return False
            if took():
                return True

    def _preempt(self, victim: Sequence, plan: Plan) -> None:
        super()._preempt(victim, plan)
        last = self._last
        if self._drops_outputs and last is not None and victim in last.finishing:
            last.finishing.remove(victim)  # the KV that goes with its token is lost
            victim.num_outputs -= 1

    def _continue_running(self, plan: Plan, budget: int, threshold: int) -> int:
        if self._defers_frees and self.batch.num and not self.allocator.steps_that_fit(1):
            return self._run_one_by_one(plan, budget, threshold)
        return super()._continue_running(plan, budget, threshold)

    def check_stuck(self) -> None:
        """Nothing will happen any more; InputError if a request is there."""
        there = [*self.running, *self.queues.in_turn]
        first = there[0] if there else self.waiting.head
        if first is not None:
            raise no_room_for_item(first.id)

    # --- what returns ---------------------------------------------------------------------------

    def returned(self, report: Report, now_ps: int) -> list[Sequence]:
        """Process the connector's report with the output of a step. Returns sequences that end with
        an error since their load failed.
        """
        self.connector.returned(report, now_ps)
        for seq in report.loaded:
            self.queues.reported(seq)
        for seq in report.sent:
            del self.kept[seq]
            self.allocator.release(seq)
        failed: list[Sequence] = []
        for seq in report.failed:
            if self.connector.recomputes_failed:
                self.queues.has_failed(seq)
                continue
            self.queues.let_go(seq)
            self.allocator.release(seq)
            failed.append(seq)
        return failed

    def finish(self, plan: Plan) -> list[Sequence]:
        if plan is self._last:
            self._last = None
            self.device.in_flight = {}
        elif self._last is not None:
            self._name_passed_over(self._last)
        return super().finish(plan)

    def _name_passed_over(self, plan: Plan) -> None:
        """What had no turn in the step after the one that returned is known content by now."""
        for seq in plan.passed_over:
            if seq in self.running:
                self._blocks.name_returned(seq, self._computed_tokens(seq))

    def _leave(self, seq: Sequence) -> None:
        if seq in self.running:
            self._blocks.leave_behind(seq)
        if seq not in self.running or not self.connector.finished(seq):
            super()._leave(seq)
            return
        seq.finished = True
        del self.running[seq]
        self._blocks.keep_for_reader(seq)
        self.kept[seq] = None

    def repeatable(self, plan: Plan, limit: int) -> int:
        if len(self.waiting) or self.connector.busy or self.kept or self._stuck:
            return 0
        limit = super().repeatable(plan, limit)
        if not limit:
            return 0
        running = tuple(self.running)
        return self.connector.quiet_steps(Decided(plan, running, running, (), ()), limit)
