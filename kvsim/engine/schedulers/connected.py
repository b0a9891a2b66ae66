"""vLLM's scheduler with a KV connector (v1/core/sched/scheduler.py, 0.33): waiting for KV from
outside of the device.

A waiting sequence with nothing computed is looked up on the device first and then by the connector.
The connector's hits are loaded in one of two ways. Either the sequence waits for the load, in a
queue of its own, with all blocks of the hit tokens; or it is admitted at once and the step waits. A
sequence with a pending lookup is skipped, and those behind it are tried.
"""

from mypy_extensions import mypyc_attr

from kvsim.engine.connectors.connector import Connector, Decided, RemoteMatch, Report
from kvsim.engine.plan import Cached, Plan
from kvsim.engine.schedulers.connected_device import ConnectedDevice
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.schedulers.continuous_parts import ContinuousParts
from kvsim.engine.schedulers.two_queues import HoldingQueues
from kvsim.memory.allocator import Demand
from kvsim.memory.loading import LoadingPromise
from kvsim.plumbing.errors import InvariantError
from kvsim.results.tier_hits import TierHit
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class ConnectedScheduler(ContinuousScheduler):
    """`ContinuousScheduler` over an allocator that loads. overlaps: a step is scheduled before the
    previous one has returned.

    kept: finished sequences with blocks that the connector still needs. put_off: sequences with a
    pending lookup in the last step. loads: sequences that began to load in it; found: tokens of
    each load, including loads that the step itself waits for. hit_tokens, awaited_hit_tokens: see
    `RunTotals`.
    """

    def __init__(self, parts: ContinuousParts, connector: Connector, *, overlaps: bool) -> None:
        allocator, policies = parts.allocator, parts.policies
        self.queues = HoldingQueues(policies.waiting)
        super().__init__(parts._replace(policies=policies._replace(waiting=self.queues)))
        if not isinstance(allocator, LoadingPromise):
            raise InvariantError(f"{type(allocator).__name__} has no blocks to load into")
        self._blocks: LoadingPromise = allocator
        self.connector = connector
        self.device = ConnectedDevice(allocator, self._computed_tokens, self.batch)
        connector.attach(self.device)
        self.kept: dict[Sequence, None] = {}
        self._overlaps = overlaps
        self._defers_frees = overlaps and connector.loads
        self._drops_outputs = overlaps and not connector.loads
        self._last: Plan | None = None
        self._stuck = False  # the step of a victim is in flight, so no sequence was preempted
        self.loads: list[Sequence] = []
        self.put_off: list[Sequence] = []
        self.found: list[tuple[Sequence, TierHit]] = []
        self.hit_tokens = 0

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

    def _stepping(self, plan: Plan) -> dict[Sequence, bool]:
        """Sequences of this step, in order, each with whether it samples a token."""
        samples = {chunk.seq: chunk.samples for chunk in plan.chunks}
        passed, members = set(plan.passed_over), set(plan.finishing)
        found: dict[Sequence, bool] = {}
        for seq in self.running:
            if seq in samples:
                found[seq] = samples[seq]
            elif seq not in passed and (seq.decoding or seq in members):
                found[seq] = True
        return found

    def _preempt_until(self, took: object, seq: Sequence, plan: Plan) -> bool:
        if self._defers_frees and self._choose_victim(self.running) in self.device.in_flight:
            self._stuck = True
            return False
        return super()._preempt_until(took, seq, plan)  # type: ignore[arg-type]

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

    def passed_by(self) -> dict[str, int]:
        return {"loads": len(self.queues.holding) + len(self.put_off)}

    # --- waiting sequences ----------------------------------------------------------------------

    def _admit(self, plan: Plan, budget: int, threshold: int) -> None:
        left = self._resume_loaded(plan, budget, threshold)
        if left is None:
            return
        passed_over = self.put_off = []
        while left > 0 and len(self.running) < self._knobs.max_num_seqs:
            if self.waiting.head is None:
                break
            more = self._admit_head(self.waiting.head, plan, left, threshold, passed_over)
            if more is None:
                break
            left = more
        for seq in reversed(passed_over):
            self.waiting.put_back(seq)

    def _admit_head(
        self,
        seq: Sequence,
        plan: Plan,
        left: int,
        threshold: int,
        passed_over: list[Sequence],
    ) -> int | None:
        """The head of the queue starts, waits for its load, or is skipped; returns the rest of the
        budget, None if it does not fit.
        """
        device_tokens = self._cached(seq).tokens
        match = self.connector.matched(seq, device_tokens)
        if match is None:
            passed_over.append(self.waiting.pop())
            return left
        if match.waits:
            return left if self._start_load(seq, plan, device_tokens, match) else None
        cached = Cached(device_tokens + match.tokens, False)
        new_tokens = self._first_chunk(seq, cached.tokens, left, threshold)
        if not new_tokens:
            return None
        fit_tokens = self._fit_tokens(seq, cached.tokens + new_tokens)
        if not self._admit_first(plan, cached, new_tokens, fit_tokens):
            return None
        self.connector.allocated(seq, device_tokens, match)
        if match.tokens:
            self._count_hit(seq, device_tokens, match)
        return left - new_tokens

    def _resume_loaded(self, plan: Plan, budget: int, threshold: int) -> int | None:
        """Start sequences with finished loads; returns the rest of `budget`, None if one of them
        does not fit, so that none behind it starts.
        """
        queues, left = self.queues, budget
        if len(queues.holding) == len(queues.loading):
            return left
        for seq in queues.in_turn:
            if left <= 0 or len(self.running) >= self._knobs.max_num_seqs:
                break
            if seq in queues.loading:
                continue
            if seq in queues.failed:
                more = self._look_up_again(seq, plan, left, threshold)
                if more is None:
                    return None
                left = more
                continue
            if seq in queues.loaded:
                self._blocks.end_load(seq, queues.loaded[seq])
            computed = min(queues.promote(seq), seq.num_tokens - 1)
            if not computed:
                self.connector.matched(seq, 0)  # who has nothing computed is looked up again
            new_tokens = self._first_chunk(seq, computed, left, threshold)
            if not new_tokens:
                return None
            num_tokens, busy = computed + new_tokens, bool(self.running)
            demand = Demand(num_tokens, self._fit_tokens(seq, num_tokens), computed, busy)
            if not self._blocks.resume(seq, demand):
                return None
            queues.let_go(seq)
            self._start(seq, plan, computed, new_tokens)
            left -= new_tokens
        return left

    def _look_up_again(self, seq: Sequence, plan: Plan, left: int, threshold: int) -> int | None:
        """A sequence with a failed load frees its blocks and is admitted like other waiting ones;
        returns as `_admit_head`.
        """
        if self.queues.failed[seq]:
            self.allocator.release(seq)
        passed_over: list[Sequence] = []
        with self.queues.chosen(seq):
            more = self._admit_head(seq, plan, left, threshold, passed_over)
        for other in passed_over:
            self.waiting.put_back(other)
        return more

    def _first_chunk(self, seq: Sequence, computed: int, left: int, threshold: int) -> int:
        """Tokens of the first chunk; 0: nothing in this step."""
        new_tokens = seq.num_tokens - computed
        if 0 < threshold < new_tokens:
            new_tokens = threshold
        if new_tokens > left and not self._knobs.enable_chunked_prefill:
            return 0
        return self._cut(seq, computed, min(new_tokens, left))

    def _fit_tokens(self, seq: Sequence, num_tokens: int) -> int:
        return max(num_tokens, seq.num_tokens) if self._knobs.fits_whole else num_tokens

    def _start_load(
        self, seq: Sequence, plan: Plan, device_tokens: int, match: RemoteMatch
    ) -> bool:
        """The head of the queue takes its blocks and waits for its load; False: no room."""
        num_tokens = device_tokens + match.tokens
        fit_tokens = self._fit_tokens(seq, num_tokens)
        demand = Demand(num_tokens, fit_tokens, device_tokens, bool(self.running))
        if not self._blocks.start_load(seq, demand, self._promised_blocks(plan)):
            return False
        self.waiting.pop()
        self.queues.load(seq, num_tokens)
        self.loads.append(seq)
        self.connector.allocated(seq, device_tokens, match)
        self._count_hit(seq, device_tokens, match)
        return True

    def _count_hit(self, seq: Sequence, device_tokens: int, match: RemoteMatch) -> None:
        storage_tokens = self.connector.take_storage_tokens(seq, device_tokens, match)
        self.found.append((seq, TierHit(device_tokens, match.tokens, storage_tokens)))
        if not seq.num_preemptions:
            self.hit_tokens += match.tokens
            self.awaited_hit_tokens += match.tokens if match.waits else 0

    def _promised_blocks(self, plan: Plan) -> int:
        """Free blocks that unfinished prompts still need for all their known tokens: of loading
        sequences, and of running ones that are not complete after this step.
        """
        lacking = self._blocks.lacking_blocks
        done = {chunk.seq for chunk in plan.chunks if chunk.samples}
        promised = sum(lacking(seq) for seq in self.queues.holding)
        return promised + sum(lacking(seq) for seq in self.prefilling if seq not in done)

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
        return super().finish(plan)

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
