"""Engine loop of one vLLM data-parallel rank of a mixture of experts (0.33, v1/engine/core.py,
`DPEngineCoreProc.run_busy_loop`). All ranks compute each forward pass together.

In every iteration the engine passes one forward to its worker: a step with tokens, or a dummy
forward. The engine waits for the outputs of steps and for dummies. In some iterations it also waits
until all ranks have agreed (`Ranks.agree`).
"""

from collections.abc import Generator, Iterable
from typing import Protocol

import simpy

from kvsim.engine.connectors.connector import NO_CONNECTOR
from kvsim.engine.connectors.totals import RunTotals
from kvsim.engine.core import EngineCore
from kvsim.engine.engine import Executor, Next
from kvsim.engine.executor.copier import Copier
from kvsim.engine.executor.rank_worker import Call, RankWorker
from kvsim.engine.plan import UNBOUNDED, Plan
from kvsim.engine.run_end import Pause
from kvsim.engine.staged_books import StagedBooks
from kvsim.plumbing.errors import InvariantError
from kvsim.step import StepShape

NAP_PS = 10**9  # vllm/v1/engine/core.py: 1 ms after an iteration without tokens


class OtherRanks(Protocol):
    """The interface of `Ranks` that the executor of one rank uses."""

    @property
    def goes_on(self) -> bool: ...

    def start_wave(self, first: "RankExecutor") -> None: ...

    def agrees_after(self, num_forwards: int) -> bool: ...

    def agree(self, *, unfinished: bool) -> simpy.Event: ...

    def meet(self) -> None: ...


class RankExecutor(Executor):
    """Launches the steps of one rank.

    connected: whether the rank has a KV connector. worker: runs the forwards that the engine passes
    to it. wakes: set when another rank starts a wave; the next iteration then joins the wave.
    """

    def __init__(self, core: EngineCore, ranks: OtherRanks, *, connected: bool) -> None:
        super().__init__(core)
        if core.steps_ahead > 1 or core.max_steps != 1:
            raise InvariantError("a rank takes one step at a time, and has at most two in flight")
        self._ranks = ranks
        self._copier = Copier(core) if connected else None
        self._books = core.books = StagedBooks(core)
        self.worker = RankWorker(
            core.parts.step_time.step_ps(StepShape((), 1, 1, 1)),
            NO_CONNECTOR if self._copier is None else self._copier.connector,
            waits=not core.steps_ahead,
        )
        self._calls: dict[Plan, Call] = {}
        self._unknown: dict[Plan, int] = {}  # placeholder for the end of a step, not known yet
        self._num_calls = 0
        self._schedules = self._ended = self._in_wave = False
        self.wakes = False
        self._left = 0  # sequences that waited after the last schedule()
        self._stuck = False
        self._num_forwards = 0  # in this wave

    # --- the engine's thread --------------------------------------------------------------------

    def begin(self) -> bool:
        scheduler = self._core.scheduler
        self._in_wave, self.wakes = self._in_wave or self.wakes, False
        if not self._in_wave and len(scheduler.waiting):
            self._in_wave = True
            self._ranks.start_wave(self)
        self._left = len(scheduler.waiting)
        self._schedules = self._has_requests
        if self._copier is not None:
            self._copier.poll_due()
            if self._schedules:
                self._copier.connector.begin(self._core.now_ps)
        return self._schedules

    def launch(self, plan: Plan) -> None:
        """Pass `plan` to the worker. Its start and end are set (`computed`) when all ranks have
        passed on their forward of the same number.
        """
        self._copy_to_host(plan)
        core, now = self._core, self._core.now_ps
        if self._copier is not None:
            self._copier.follow(plan, now)
        plan.start_ps = max(plan.start_ps, now)
        own_ps = 0
        if not plan.empty:
            core.timer.time(plan, now, core.in_flight)
            own_ps, plan.first_ps = plan.first_ps, 0
            self._num_calls += 1
            plan.start_ps = self._unknown[plan] = UNBOUNDED + self._num_calls
        self._hand_over(Call(now, plan, own_ps))

    def _hand_over(self, call: Call) -> Call:
        if call.plan is not None:
            self._calls[call.plan] = call
        self.worker.calls.append(call)
        self._ranks.meet()
        return call

    def next(self, plan: Plan) -> Next:
        core = self._core
        self._stuck = False
        if not self._schedules:
            return Next.LAND if core.in_flight else Next.REST
        self._left, self._ended = len(core.scheduler.waiting), False
        if self._copier is not None:
            self._copier.left, self._copier.ended = self._left, False
        self._stuck = self._is_stuck(plan)
        fills = not plan.empty or self._has_requests
        return Next.FILL if fills and len(core.in_flight) < core.steps_ahead else Next.LAND

    def filled(self, plan: Plan) -> Iterable[simpy.Event]:
        yield from self.landed(plan)
        yield from self._core.settle()

    def stays(self, plan: Plan) -> bool:
        return self._schedules

    def until_ready(self, oldest: Plan) -> Iterable[simpy.Event]:
        return self._answered(self._calls[oldest])

    def landed(self, plan: Plan) -> Iterable[simpy.Event]:
        return self._agree(unfinished=self._unfinished) if not plan.empty else self._dummy(plan)

    def rest(self, plan: Plan) -> Iterable[simpy.Event]:
        core = self._core
        if self._in_wave:
            yield from self._dummy(plan)
        elif not self.wakes:
            yield from core.sleep(core.env.event())
        yield from core.settle()

    @property
    def _has_requests(self) -> bool:
        """Whether the engine calls schedule().

        It does if sequences wait, run or load, or copies are in flight, or the worker has not yet
        received the ids of finished sequences. A request that arrives counts from the next
        iteration on.
        """
        goes_on = self._copier is not None and self._copier.goes_on
        return self._unfinished or self._ended or goes_on

    @property
    def _unfinished(self) -> bool:
        return bool(self._core.scheduler.running) or self._left > 0

    # --- with the other ranks -------------------------------------------------------------------

    def _dummy(self, plan: Plan) -> Generator[simpy.Event, None, None]:
        """End an iteration without tokens: sleep 1 ms if the scheduler has requests, then compute a
        dummy forward.
        """
        core = self._core
        if self._stuck and core.gave_way(plan):
            self._left = len(core.scheduler.waiting)
        if self._has_requests:
            if self._copier is not None:
                yield from self._copier.nap()
            else:
                yield from self._pause(NAP_PS)
        unfinished = self._unfinished
        if unfinished or self._in_wave:
            yield from self._answered(self._hand_over(Call(core.now_ps, None, 0)))
            yield from self._agree(unfinished=unfinished)

    def _is_stuck(self, plan: Plan) -> bool:
        """Whether sequences wait, and only an arrival can change the next schedule()."""
        goes_on = self._copier is not None and self._copier.goes_on
        return (
            self._core.parts.refuse
            and self._left > 0
            and plan.empty
            and not (
                self._core.scheduler.running
                or goes_on
                or any(not each.empty for each in self._calls)
            )
        )

    def _agree(self, *, unfinished: bool) -> Generator[simpy.Event, None, None]:
        """Count the forward of this iteration. In the first one and in every sync_steps-th one,
        agree with the other ranks on whether the wave continues.
        """
        self._num_forwards += 1
        if not self._ranks.agrees_after(self._num_forwards):
            return
        self._books.open()
        yield self._ranks.agree(unfinished=unfinished)
        if not self._ranks.goes_on:
            self._in_wave, self._num_forwards = False, 0

    def _answered(self, call: Call) -> Generator[simpy.Event, None, None]:
        """Wait until the worker returns the output of `call`."""
        core = self._core
        if call.ready_ps is None:
            self._books.open()
            call.launched = core.env.event()
            yield call.launched
        assert call.ready_ps is not None
        yield from self._pause(call.ready_ps - core.now_ps)

    def _pause(self, delay_ps: int) -> Generator[simpy.Event, None, None]:
        if delay_ps > 0:
            core, now = self._core, self._core.now_ps
            self._books.open()
            yield Pause(core.env, delay_ps)
            self._books.idled(now, core.now_ps)

    def computed(self, call: Call, poll_ps: int) -> None:
        """Set the times of the plan of `call`, which the worker has launched. poll_ps: time at
        which the worker polls for finished copies.
        """
        plan = call.plan
        if plan is None:
            return
        if not plan.empty:
            plan.start_ps = max(call.at_ps, self.worker.token_ps)
            plan.first_ps = call.end_ps - plan.start_ps
            self.worker.token_ps = call.end_ps
            waits_ps = call.start_ps - plan.start_ps
            plan.stalls = [(waits_ps, self._core.scheduler.usage())] if waits_ps > 0 else []
        if self._copier is not None:
            self._copier.poll(plan, poll_ps, poll_ps)
            self._copier.held_up_ps += call.held_up_ps
        if self._core.observer is not None:
            self._core.observer.polled(self._core.scheduler, plan)

    # --- what returns ---------------------------------------------------------------------------

    def land(self, plan: Plan, now_ps: int) -> None:
        del self._calls[plan]
        self._books.came(self._unknown.pop(plan, now_ps), now_ps)
        super().land(plan, now_ps)
        self._ended = self._ended or bool(plan.finishing)
        if self._copier is not None:
            self._copier.landed(plan, now_ps)
            self._left -= len(plan.failed)

    def repeatable(self, plan: Plan) -> int:
        return 0

    def overlap(self, steps: int) -> int:
        return 0

    def rouse(self) -> None:
        if self._copier is not None:
            self._copier.rouse()

    def tier_totals(self) -> RunTotals | None:
        return None if self._copier is None else self._copier.totals()

    def close(self) -> None:
        if self._copier is not None:
            self._copier.close()
