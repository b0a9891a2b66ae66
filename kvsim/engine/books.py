"""The accounting of an engine: memory use over time, gaps between output tokens, and preemptions
without progress.
"""

from collections.abc import Iterable

from kvsim.engine.plan import PausedBatch, Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.ledger import Course, Usage, file_free, filed
from kvsim.memory.parts import NO_PARTS
from kvsim.plumbing.errors import InputError
from kvsim.results.recorder import Recorder
from kvsim.sequence import Sequence

MOST_FRUITLESS = 10_000  # preemptions in a row without a token


class Books:
    """Reports the steps of one engine to its recorder.

    The engine calls `open` before simulated time passes, and `last_step` and `computed` afterwards.
    """

    def __init__(self, scheduler: Scheduler, recorder: Recorder) -> None:
        self._scheduler = scheduler
        self._recorder = recorder
        self._usage = Usage()
        self._opened = Usage()  # at `open`: splits the free bytes of what follows
        self._saved_bytes = 0
        self._parts = NO_PARTS
        self._num_waiting = 0
        self._pauses = Pauses()
        self._head: Sequence | None = None  # of the queue

    def planned(self, plan: Plan, token_ps: int) -> None:
        """Note sequences that `plan` skips and sequences that it resumes; token_ps is the time of
        the last token.
        """
        self._pauses.planned(plan, token_ps)

    def returned(self, plan: Plan, now_ps: int) -> None:
        """Set the first-token times of prompts in `plan`, which output their tokens at now_ps."""
        for chunk in plan.chunks:
            if chunk.samples and chunk.seq.first_token_ps < 0:
                chunk.seq.first_token_ps = now_ps

    def open(self) -> None:
        """Read the memory ledger and the queue's length before time passes.

        `queue` records arrivals in the meantime.
        """
        self._num_waiting = len(self._scheduler.waiting)
        self._head = self._scheduler.waiting.head
        self.scheduled(None)

    def idled(self, start_ps: int, end_ps: int) -> None:
        """Record that the engine computed nothing between these times.

        Sequences may be running: an engine with copies in flight sleeps between two polls.
        """
        rest = len(self._scheduler.running), self._num_waiting, self._saved_bytes, self._parts
        self._recorder.interval(start_ps, 0, end_ps - start_ps, 0, self._usage, None, *rest)

    def held(self, plan: Plan) -> None:
        """Record the time for which the scheduler waited for copies before it launched `plan`.

        It is recorded now since the next scheduling pass may start other sequences before that plan
        ends.
        """
        plan.held_booked = True
        stall_ps, usage = plan.stalls[0]
        rest = len(self._scheduler.running), self._num_waiting, self._saved_bytes, self._parts
        self._recorder.interval(plan.start_ps, 0, stall_ps, 0, usage, None, *rest)

    def queue(self, now_ps: int) -> None:
        """Record the length of the queue, which may have changed."""
        self._recorder.queue(now_ps, len(self._scheduler.waiting))

    def last_step(self, done: Plan, ahead: Iterable[Plan]) -> None:
        """Record the last step of `done`. Plans `ahead` were scheduled while it computed, so their
        slots are allocated but not yet valid.
        """
        for plan in ahead:
            self._usage = self._before_return(self._usage, plan)
        self._book(done, done.last_start_ps, 1, done.end_ps - done.last_start_ps, 0, None)

    def scheduled(self, ahead: Plan | None) -> None:
        """Read the memory ledger after one more step was scheduled; free bytes are split as at
        `open`.

        ahead: the plan of that step, if its slots are not yet valid.
        """
        allocator = self._scheduler.allocator
        if ahead is None or ahead.ends_ps:
            usage = self._opened = self._scheduler.usage_for(self._head)
        else:
            usage = file_free(allocator.usage(None, busy=True), self._opened)
        self._usage = usage if ahead is None else self._before_return(usage, ahead)
        self._saved_bytes, self._parts = allocator.saved_bytes or 0, allocator.parts

    def computed(self, plan: Plan, first: int, steps: int, course: Course | None) -> None:
        """Record `steps` steps of `plan`, from its step number `first` on. course: how the memory
        ledger changed in them.
        """
        if not plan.ends_ps:
            if course is not None and self._usage is not self._opened:
                course = filed(course, self._opened)
            self._book(plan, plan.start_ps, steps, plan.first_ps, plan.growth_ps, course)
            return
        before_ps = plan.ends_ps[first - 1] if first else 0
        start_ps, step_ps = plan.start_ps + before_ps, plan.ends_ps[first] - before_ps
        self._book(plan, start_ps, steps, step_ps, 0, course)

    def spaced(self, plan: Plan, start_ps: int, step_ps: int, token_ps: int) -> None:
        """Record one of several steps of `plan` that ran for step_ps from start_ps on, after a
        sleep.

        token_ps: end of the step before the sleep.
        """
        if token_ps < start_ps and not plan.num_late:
            plan.late_batch = PausedBatch(token_ps, plan.num_decode, set())
            plan.num_late = plan.num_decode
        self._book(plan, start_ps, 1, step_ps, 0, None)

    def pause(self, sequences: Iterable[Sequence], token_ps: int) -> None:
        """Record that an empty plan skipped `sequences`, with their last token at token_ps."""
        plan = Plan()
        plan.passed_over = list(sequences)
        self._pauses.planned(plan, token_ps)

    def _before_return(self, usage: Usage, ahead: Plan) -> Usage:
        """The memory ledger with the slots of the scheduled step `ahead` counted as reserved, not
        used.

        The number of slots is limited to those used: each sequence that shares a slot counts it
        once.
        """
        used, reserved, *others = usage
        ahead_bytes = min(ahead.new_slots * self._scheduler.allocator.token_bytes, used)
        return Usage(used - ahead_bytes, reserved + ahead_bytes, *others)

    def _book(
        self,
        plan: Plan,
        start_ps: int,
        steps: int,
        first_ps: int,
        growth_ps: int,
        course: Course | None,
    ) -> None:
        """Record `steps` steps of `plan` from start_ps on, after its copies.

        first_ps: duration of the first step; growth_ps: how much longer each step is than the one
        before.
        """
        recorder, running = self._recorder, len(self._scheduler.running)
        self._tokens(plan, start_ps, steps, first_ps, growth_ps)
        if plan.stalls:
            rest = self._num_waiting, self._saved_bytes, self._parts
            for at, (stall_ps, usage) in enumerate(plan.stalls):
                if at or not plan.held_booked:
                    recorder.interval(start_ps, 0, stall_ps, 0, usage, None, running, *rest)
                start_ps += stall_ps
                first_ps -= stall_ps
        recorder.interval(
            start_ps,
            steps,
            first_ps,
            growth_ps,
            self._usage,
            course,
            running,
            self._num_waiting,
            self._saved_bytes,
            self._parts,
        )
        if plan.outside:
            recorder.outside_steps += steps

    def _tokens(self, plan: Plan, start_ps: int, steps: int, first_ps: int, growth_ps: int) -> None:
        """Record the gaps between output tokens in these steps; the first gap may include a
        pause.
        """
        recorder, num = self._recorder, plan.num_decode + plan.num_verifying
        if plan.late or plan.num_late:
            recorder.gaps_until(start_ps + first_ps, plan.late.values())
            if plan.late_batch is not None:
                since_ps, paused = plan.late_batch.since_ps, plan.late_batch.num
                recorder.tokens(paused, 1, start_ps + first_ps - since_ps, 0)
            recorder.tokens(num - plan.num_late, 1, first_ps, 0)
            plan.late, plan.late_batch, plan.num_late = {}, None, 0
            steps, first_ps = steps - 1, first_ps + growth_ps
        if steps:
            recorder.tokens(num, steps, first_ps, growth_ps)


class Pauses:
    """Sequences of one engine that wait for their next token longer than a step, and since when.

    A step may skip some members of the decode batch, or all. If it skips all, they are stored as
    one count and one time. Sequences that join the batch later and are skipped too are stored one
    by one.
    """

    def __init__(self) -> None:
        self._preempted: dict[Sequence, int] = {}  # and the time of their last token
        self._passed_over: dict[Sequence, int] = {}  # likewise
        self._batch: PausedBatch | None = None  # all members at once
        self._newcomers: list[Sequence] = []  # in the batch since its last pause

    def planned(self, plan: Plan, token_ps: int) -> None:
        """Note sequences that `plan` skips and sequences that it resumes; token_ps is the time of
        the last token.
        """
        for seq in plan.preempted:
            if seq.num_outputs and seq not in self._preempted:
                since_ps = self._end(seq, token_ps)
                self._preempted[seq] = plan.lost.get(seq, since_ps)
        for seq, _ in plan.failed:
            if seq.num_outputs:
                self._end(seq, token_ps)
        if plan.num_paused:
            self._pause_batch(plan, token_ps)
        elif plan.passed_over or self._passed_over or self._batch is not None:
            self._go_on(plan, token_ps)
        if self._preempted:
            for chunk in plan.chunks:
                if chunk.samples and chunk.seq in self._preempted:
                    plan.late[chunk.seq] = self._preempted.pop(chunk.seq)
            for seq in plan.rejoined:
                plan.late[seq] = self._preempted.pop(seq)
                plan.num_late += 1

    def since_ps(self) -> set[int]:
        """Times in ps of the last tokens of all paused sequences."""
        batch = [] if self._batch is None else [self._batch.since_ps]
        return {*self._preempted.values(), *self._passed_over.values(), *batch}

    def _end(self, seq: Sequence, token_ps: int) -> int:
        """Remove `seq`, which is preempted or has failed; returns the time of its last token."""
        batch = self._batch
        if batch is not None and seq not in batch.apart and seq not in self._newcomers:
            batch.num -= 1
            return batch.since_ps
        return self._passed_over.pop(seq, token_ps)

    def _pause_batch(self, plan: Plan, token_ps: int) -> None:
        """Note that no member of the decode batch gets a token in `plan`."""
        if self._batch is None:
            apart = set(self._passed_over)
            self._batch = PausedBatch(token_ps, plan.num_paused - len(apart), apart)
        else:
            joined = (seq for seq in self._newcomers if seq.decoding)
            self._passed_over.update(dict.fromkeys(joined, token_ps))
            self._batch.apart.update(self._newcomers)
        self._newcomers = [chunk.seq for chunk in plan.chunks if chunk.samples]

    def _go_on(self, plan: Plan, token_ps: int) -> None:
        """Note that some members of the decode batch, or all, get a token in `plan`."""
        if self._batch is not None:
            self._batch.apart.update(self._newcomers)
            plan.late_batch, self._batch = self._batch, None
            plan.num_late += plan.late_batch.num
        before, now = self._passed_over, dict.fromkeys(plan.passed_over, token_ps)
        for seq, since_ps in before.items():
            if seq in now:
                now[seq] = since_ps
            else:
                plan.late[seq] = since_ps
                plan.num_late += 1
        self._passed_over = now


class Progress:
    """Counts preemptions since the last token, to stop the simulation if sequences preempt each
    other for ever.
    """

    def __init__(self) -> None:
        self._fruitless = 0

    def check(self, plan: Plan) -> None:
        """Raise InputError after MOST_FRUITLESS preemptions in a row, `plan` included, without a
        token.
        """
        if plan.num_decode or any(chunk.samples for chunk in plan.chunks):
            self._fruitless = 0
            return
        self._fruitless += len(plan.preempted)
        if self._fruitless > MOST_FRUITLESS:
            raise InputError(
                "sequences preempt each other without ever producing a token",
                where="scheduler",
                value=f"{self._fruitless:,} preemptions in a row",
                limit=f"{MOST_FRUITLESS:,}",
                remedy="set scheduler_reserve_full_isl = true, or give the pool more memory",
            )
