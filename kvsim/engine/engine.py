"""The engine: plan, wait, commit, as a simpy process.

Under asynchronous scheduling (`depth` 2) a step is scheduled while the one before it computes, so
the engine waits for the older of two plans; everything else is the same.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Protocol, cast

import simpy
from simpy.events import EventPriority

from kvsim.engine.plan import Plan
from kvsim.engine.scheduler import UNBOUNDED, Scheduler
from kvsim.errors import InvariantError
from kvsim.memory.allocator import Refusal
from kvsim.memory.ledger import Course, Usage, file_free
from kvsim.request import Request
from kvsim.results.recorder import Recorder
from kvsim.sequence import Sequence
from kvsim.step_time.form import Measured, StepTime

_AFTER_ARRIVALS = EventPriority(
    2
)  # simpy priority: what arrives at the instant a step ends is seen by the next


class StepEnd(simpy.Event):
    """Happens after `delay` ps, later than every arrival at the same instant."""

    def __init__(self, env: simpy.Environment, delay: int) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, priority=_AFTER_ARRIVALS, delay=delay)


class Observer(Protocol):
    """Watches steps (schedule recordings, replays on a real backend).

    engine: the engine it watches, which sets it.
    """

    engine: "Engine"

    def planning(self, now_ps: int) -> None:
        """The next step is about to be scheduled."""

    def planned(self, plan: Plan, now_ps: int) -> None:
        """`plan` has been scheduled; its memory is taken."""

    def finished(self, plan: Plan, now_ps: int) -> None:
        """Its outputs have been processed; what finished has given its memory back."""

    def idle(self, now_ps: int, *, stalled: bool) -> bool:
        """Nothing runs; stalled: and the queue cannot start. True: it has submitted something."""


class Engine:
    """One engine replica: a scheduler, its allocator, and a clock in integer picoseconds.

    max_steps: most steps one plan may stand for; 1 gives the step-by-step run.
    on_left: called with each request when it has left, finished or refused.
    refuse: turn away what can never run; False keeps it in the queue for ever, as a real scheduler
        without a front end does.
    """

    def __init__(
        self,
        env: simpy.Environment,
        scheduler: Scheduler,
        step_time: StepTime,
        recorder: Recorder,
        *,
        depth: int = 1,
        max_steps: int | None = None,
        on_left: Callable[[Request], None] = lambda request: None,
        observer: Observer | None = None,
        refuse: bool = True,
    ) -> None:
        self.env = env
        self.scheduler = scheduler
        self._step_time = step_time
        self._measured = step_time if isinstance(step_time, Measured) else None
        self._recorder = recorder
        self._behind = depth - 1
        self._max_steps = UNBOUNDED if max_steps is None else max_steps
        self._on_left = on_left
        self._observer = observer
        if observer is not None:
            observer.engine = self
        self._refuse = refuse
        self._in_flight: deque[Plan] = deque()
        self._token_bytes = scheduler.allocator.token_bytes
        self._wake: simpy.Event | None = None
        self._paused: dict[Sequence, int] = {}  # preempted, with the time of their last token
        self._held: dict[Sequence, int] = {}  # passed over, likewise
        self._private_ids = 0
        self._open: dict[str, int] = {}  # sequences of a request that have not left
        self.process = env.process(self._run())

    @property
    def now_ps(self) -> int:
        """The clock; simpy's, which only ever gets integers here."""
        return cast("int", self.env.now)

    # --- arrivals -------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """`request` arrives now: its sequences wait, or it is refused by name."""
        scheduler, now = self.scheduler, self.now_ps
        self._recorder.arrived(now)
        room = max(1, scheduler.max_model_len - request.prompt_tokens)
        if request.output_tokens > room:  # generation stops at max_model_len
            request = replace(request, output_tokens=room)
        refusal = self._refusal(request) if self._refuse else None
        if refusal is not None:
            self._recorder.refused(request, now, str(refusal))
            self._on_left(request)
            return
        self._open[request.id] = request.n
        first = False
        for seq in self._samples(request, now):
            first |= scheduler.add(seq)
        if first:
            self.cut()

    def cut(self) -> None:
        """End the run under way with the step under way, so that the books can close there."""
        if self._wake is not None and not self._wake.triggered:
            self._wake.succeed()

    def _samples(self, request: Request, now_ps: int) -> Iterator[Sequence]:
        """The sequences of a request: n of them share its prompt and go their own ways after it."""
        if request.n == 1:
            yield Sequence(request, now_ps)
            return
        if request.prompt_runs is None:  # ids below zero are nobody else's
            self._private_ids -= request.prompt_tokens
            runs = ((self._private_ids, request.prompt_tokens),)
            request = replace(request, prompt_runs=runs)
        for sample in range(request.n):
            seq = Sequence(request, now_ps, f"{sample}_{request.id}")
            if sample:
                seq.output_start = None
            yield seq

    def _refusal(self, request: Request) -> Refusal | None:
        """Why nothing could ever bring `request` to its end."""
        scheduler = self.scheduler
        return (
            self._too_long(request)
            or scheduler.refusal(request)
            or scheduler.allocator.refusal(request)
        )

    def _too_long(self, request: Request) -> Refusal | None:
        longest = self.scheduler.max_model_len - 1
        if request.prompt_tokens <= longest:
            return None
        return Refusal(
            "a prompt that leaves no room for output in max_model_len",
            request.prompt_tokens,
            longest,
            "tokens",
            "clip the prompts or raise max_model_len",
        )

    # --- plan, wait, commit ---------------------------------------------------------------------

    def _run(self) -> Generator[simpy.Event, None, None]:
        while True:
            plan = self._plan()
            if plan.empty and not self._in_flight:
                yield from self._idle(plan)
            elif not plan.empty and len(self._in_flight) < self._behind:
                self._in_flight.append(plan)
            else:
                steps = yield from self._wait(plan)
                self._commit(plan, steps)

    def _plan(self) -> Plan:
        """Schedule the next step and time it."""
        if self._observer is not None:
            self._observer.planning(self.now_ps)
        plan = self.scheduler.schedule()
        now = self.now_ps
        self._note_pauses(plan, self._in_flight[0].end_ps if self._in_flight else now)
        for seq, _, _ in plan.admitted:
            if seq.first_scheduled_ps < 0:
                seq.first_scheduled_ps = now
        plan.start_ps = self._in_flight[-1].end_ps if self._in_flight else now
        if not plan.empty:
            stall_ps = sum(ps for ps, _ in plan.stalls)
            shape = plan.shape()
            plan.first_ps = stall_ps + self._step_time.step_ps(shape)
            plan.outside = self._measured is not None and self._measured.outside_domain(shape)
        if self._observer is not None:
            self._observer.planned(plan, now)
        return plan

    def _note_pauses(self, plan: Plan, token_ps: int) -> None:
        """Whose tokens stop coming with this plan, the last at `token_ps`, and whose come again."""
        for seq in plan.preempted:
            if seq.num_outputs:
                self._paused.setdefault(seq, self._held.pop(seq, token_ps))
        for seq in plan.held:
            self._held.setdefault(seq, token_ps)
        held = set(plan.held)
        for seq in [seq for seq in self._held if seq not in held]:
            plan.late[seq] = self._held.pop(seq)
            plan.num_late += 1
        for chunk in plan.chunks:
            if chunk.samples and chunk.seq in self._paused:
                plan.late[chunk.seq] = self._paused.pop(chunk.seq)

    def _wait(self, plan: Plan) -> Generator[simpy.Event, None, int]:
        """Let time pass until the plan, repeated as long as nothing changes, must be committed.

        Returns how many steps it stands for: all that may repeat, or fewer if something arrived.
        """
        now = self.now_ps
        lead_ps = self._in_flight[0].end_ps - now if self._in_flight else 0
        steps = 1 if plan.empty else 1 + self._repeatable(plan)
        self._usage = self.scheduler.usage()
        wait_ps = lead_ps + plan.duration_ps(steps - self._behind)
        end = StepEnd(self.env, wait_ps)
        if steps == 1:
            yield end
            return 1
        self._wake = self.env.event()
        yield end | self._wake
        woken, self._wake = self._wake.triggered, None
        elapsed_ps = self.now_ps - now
        if woken and elapsed_ps < wait_ps:
            late_ps = max(0, elapsed_ps - lead_ps)
            steps = max(1, self._behind + plan.steps_by(late_ps, steps))
            yield StepEnd(self.env, lead_ps + plan.duration_ps(steps - self._behind) - elapsed_ps)
        return steps

    def _repeatable(self, plan: Plan) -> int:
        """How many more steps equal to `plan` may follow, and how their durations grow."""
        if plan.late or self._max_steps == 1:
            return 0
        if self._in_flight and (self._in_flight[0].finishing or self._in_flight[0].chunks):
            return 0
        more = self.scheduler.repeatable(plan, self._max_steps - 1)
        if more:
            run = self._step_time.decode_run(
                plan.num_decode, plan.context_tokens, plan.longest_context_tokens
            )
            plan.growth_ps = run.growth_ps
            if run.steps is not None:
                more = min(more, run.steps - 1)
        return more

    def _commit(self, plan: Plan, steps: int) -> None:
        """What the wait was for has happened: book it, and process the outputs that returned."""
        if self._behind:
            done = self._in_flight.popleft()
            self._book_overlapped(done, plan, steps)
            if not plan.empty:
                self._in_flight.append(plan)
        else:
            done = plan
            course = self.scheduler.repeat(plan, steps - 1) if steps > 1 else None
            self._book(plan, plan.start_ps, steps, plan.first_ps, plan.growth_ps, course)
        self._finish(done)

    def _finish(self, plan: Plan) -> None:
        returned_ps = self.now_ps if not self._behind else plan.end_ps
        for chunk in plan.chunks:
            if chunk.samples and chunk.seq.first_token_ps < 0:
                chunk.seq.first_token_ps = returned_ps
        for since_ps in plan.late.values():
            self._recorder.gap(returned_ps - since_ps)
        for seq in self.scheduler.finish(plan):
            self._recorder.left(seq, returned_ps)
            request = seq.request
            self._open[request.id] -= 1
            if not self._open[request.id]:
                del self._open[request.id]
                self._on_left(request)
        if self._observer is not None:
            self._observer.finished(plan, self.now_ps)

    # --- what the recorder is told --------------------------------------------------------------

    def _book(
        self,
        plan: Plan,
        start_ps: int,
        steps: int,
        first_ps: int,
        growth_ps: int,
        course: Course | None,
    ) -> None:
        """`plan` computed for `steps` steps from start_ps on, the ledger at `self._usage`."""
        for stall_ps, usage in plan.stalls:
            self._recorder.interval(start_ps, 0, stall_ps, 0, usage, None, *self._counts())
            start_ps += stall_ps
            first_ps -= stall_ps
        self._recorder.interval(
            start_ps, steps, first_ps, growth_ps, self._usage, course, *self._counts()
        )
        if plan.outside:
            self._recorder.outside_steps += steps
        stall_ps = sum(ps for ps, _ in plan.stalls)
        self._recorder.tokens(
            plan.num_decode - plan.num_late, steps, first_ps + stall_ps, growth_ps
        )

    def _book_overlapped(self, done: Plan, plan: Plan, steps: int) -> None:
        """While `done` computed its last step, `plan` was scheduled: its slots were taken but not
        yet valid, in that step and, one step on each time, in those it repeated.
        """
        now, ahead = self._usage, plan.new_tokens * self._token_bytes
        self._usage = _not_yet_valid(now, ahead)
        last_ps = done.first_ps + done.growth_ps * (done.steps - 1)
        self._book(done, done.end_ps - last_ps, 1, last_ps, 0, None)
        if steps == 1:
            return
        self.scheduler.repeat(plan, 1)
        next_usage = file_free(self.scheduler.allocator.usage(None, busy=True), now)
        self._usage = _not_yet_valid(next_usage, ahead)
        course = self.scheduler.repeat(plan, steps - 2) if steps > 2 else None
        self._book(plan, plan.start_ps, steps - 1, plan.first_ps, plan.growth_ps, course)

    def _counts(self) -> tuple[int, int]:
        return len(self.scheduler.running), len(self.scheduler.waiting)

    # --- nothing to do --------------------------------------------------------------------------

    def _idle(self, plan: Plan) -> Generator[simpy.Event, None, None]:
        """Wait for an arrival. A queue that cannot start in an idle engine would wait for ever:
        refusals on arrival exclude it, so it is a fault unless an observer takes it.
        """
        if plan.preempted:
            if self._observer is not None:
                self._observer.finished(plan, self.now_ps)
            return
        now, stalled = self.now_ps, bool(self.scheduler.waiting)
        if self._observer is not None:
            if self._observer.idle(now, stalled=stalled):
                return
        elif stalled:
            raise InvariantError(f"{self.scheduler.waiting.head} can never start")
        usage = self.scheduler.usage()
        self._wake = self.env.event()
        yield self._wake
        self._wake = None
        counts = (0, len(self.scheduler.waiting))
        self._recorder.interval(now, 0, self.now_ps - now, 0, usage, None, *counts)


def _not_yet_valid(usage: Usage, ahead_bytes: int) -> Usage:
    """The ledger with slots of a step that has not begun counted as reserved."""
    return usage._replace(used=usage.used - ahead_bytes, reserved=usage.reserved + ahead_bytes)
