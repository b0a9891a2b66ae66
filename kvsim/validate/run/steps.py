"""Schedule a recorded run's steps again without simulating time, and compare the decisions step by
step.

A scheduler that runs at other times decides differently. So here each step sees exactly the
requests that had arrived when the recorded step was scheduled, whatever durations are simulated.
Under asynchronous scheduling as many steps are in flight, and end in the same order. Then tokens,
queues, blocks and bytes must be equal in every step, and only step durations remain to be compared.
"""

from collections import deque
from typing import Any, NamedTuple

from kvsim.engine.intake import Intake
from kvsim.engine.plan import Plan
from kvsim.observed.folder import ObservedRun
from kvsim.observed.steps import ObservedStep, ScheduledStep, schedule_step
from kvsim.plumbing.units import PS_PER_S
from kvsim.results.recorder import Recorder
from kvsim.sequence import Sequence
from kvsim.step import StepShape
from kvsim.step_time.calibrated.fitted import Errors
from kvsim.step_time.calibrated.samples import Kind, kind_of
from kvsim.step_time.form import StepTime
from kvsim.validate.run.intervals import mean_interval


class StepDifference(NamedTuple):
    """The first step with another decision than recorded, and the first column that differs."""

    step: int
    figure: str
    recorded: object
    simulated: object


class LockStep(NamedTuple):
    """Result of scheduling the recorded steps again.

    shapes has the batch shapes of all steps before the first difference. stalls_ps has the time of
    swap copies before each of these steps. difference is the first deviation; None: there is none.
    """

    recorded: tuple[ObservedStep, ...]
    shapes: tuple[StepShape, ...]
    stalls_ps: tuple[int, ...]
    difference: StepDifference | None

    def summary(self) -> dict[str, Any]:
        """The summary for `--json`."""
        return {
            "steps": len(self.recorded),
            "equal": len(self.shapes),
            "first_difference": self.difference and self.difference._asdict(),
        }


def lock_step(run: ObservedRun) -> LockStep:
    """Schedule the recorded steps again, up to the first difference. The run must have recorded
    steps.
    """
    assert run.steps is not None
    again = _StepsAgain(run)
    for number, step in enumerate(run.steps):
        difference = again.schedule(number, step)
        if difference is not None:
            break
    else:
        difference = again.land(0)
    return LockStep(run.steps, tuple(again.shapes), tuple(again.stalls_ps), difference)


class _InFlight(NamedTuple):
    """A scheduled step that has not ended."""

    number: int
    recorded: ObservedStep
    found: ScheduledStep
    plan: Plan
    shape: StepShape


class _StepsAgain:
    """The recorded run's scheduler, which sees the same arrivals before each step.

    shapes and stalls_ps have one entry for each step that ended as recorded.
    """

    def __init__(self, run: ObservedRun) -> None:
        spec = run.meta.replica_spec()
        self._requests = run.requests
        self._steps_ahead = spec.scheduler.depth - 1
        self._scheduler = spec.build()
        self._intake = Intake(
            self._scheduler, Recorder(spec.capacity_bytes), lambda _: None, refuse=True
        )
        self._in_flight = deque[_InFlight]()
        self._arrived = 0
        self.shapes: list[StepShape] = []
        self.stalls_ps: list[int] = []

    def schedule(self, number: int, step: ObservedStep) -> StepDifference | None:
        """Schedule one step, end the steps beyond the engine's queue depth, and return the first
        difference of an ended step.
        """
        early: list[Sequence] = []
        if step.alone_arrived is not None and self._in_flight:
            self._arrive(step.alone_arrived)
            plan = self._scheduler.schedule()
            early = plan.preempted
            if not plan.empty:
                return StepDifference(number, "alone_arrived", step.alone_arrived, None)
            difference = self.land(0)
            if difference is not None:
                return difference
        self._arrive(step.arrived)
        if self._in_flight:
            plan = self._scheduler.schedule()
            preempted = plan.preempted
        else:
            plan, preempted = schedule_step(self._scheduler)
        shape = plan.shape()
        found = ScheduledStep.of(plan, shape, early + preempted, self._scheduler)
        self._in_flight.append(_InFlight(number, step, found, plan, shape))
        return self.land(self._steps_ahead)

    def land(self, left: int) -> StepDifference | None:
        """End the oldest steps until `left` are in flight; returns the first difference found."""
        while len(self._in_flight) > left:
            number, recorded, found, plan, shape = self._in_flight.popleft()
            for seq in self._scheduler.finish(plan):
                self._intake.left(seq, 0)
            difference = _difference(number, recorded, found.after(self._scheduler))
            if difference is not None:
                return difference
            self.shapes.append(shape)
            self.stalls_ps.append(sum(ps for ps, _ in plan.stalls))
        return None

    def _arrive(self, count: int) -> None:
        for request in self._requests[self._arrived : count]:
            self._intake.take(request, request.arrival_ps)
        self._arrived = count


def _difference(number: int, recorded: ObservedStep, found: ScheduledStep) -> StepDifference | None:
    for figure in ScheduledStep.model_fields:
        was, now = getattr(recorded, figure), getattr(found, figure)
        if was != now:
            return StepDifference(number, figure, was, now)
    return None


class StepErrors(NamedTuple):
    """Relative errors of simulated step times, by kind of step.

    intervals has, by kind, the 95 % ranges of the mean absolute error and of the bias. total is
    simulated / recorded - 1 for the sum over all steps.
    """

    by_kind: dict[Kind, Errors]
    intervals: dict[Kind, dict[str, tuple[float, float]]]
    total: float

    def summary(self) -> dict[str, Any]:
        """The summary for `--json`; fractions."""
        kinds = {
            kind: errors.model_dump() | {f"{name}_95": span for name, span in spans.items()}
            for (kind, errors), spans in zip(
                self.by_kind.items(), self.intervals.values(), strict=True
            )
        }
        return {"by_kind": kinds, "total": self.total}


def step_errors(found: LockStep, step_time: StepTime) -> StepErrors:
    """Errors of the durations of steps with decisions as recorded; there must be at least one."""
    errors: list[float] = []
    simulated_s = recorded_s = 0.0
    for step, shape, stall_ps in zip(found.recorded, found.shapes, found.stalls_ps, strict=False):
        seconds = (stall_ps + step_time.step_ps(shape)) / PS_PER_S
        took = step.end_s - step.start_s
        errors.append(seconds / took - 1.0)
        simulated_s, recorded_s = simulated_s + seconds, recorded_s + took
    kinds = [kind_of(shape) for shape in found.shapes]
    by_kind = Errors.by_kind(errors, kinds)
    intervals = {}
    for kind in by_kind:
        own = [error for error, its in zip(errors, kinds, strict=True) if its == kind]
        intervals[kind] = {
            "mape": mean_interval([abs(error) for error in own]),
            "bias": mean_interval(own),
        }
    return StepErrors(by_kind, intervals, simulated_s / recorded_s - 1.0)
