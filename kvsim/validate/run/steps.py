"""The recorded steps again, without time: the same requests before each, so the same decisions.

A scheduler that runs at other moments decides differently. So here every step finds the requests
that had arrived when the recorded one was scheduled, however long anything took. Then tokens,
queues, blocks and bytes must be equal in every step, and only the durations of steps remain to be
compared.
"""

from typing import Any, NamedTuple

from kvsim.engine.intake import Intake
from kvsim.observed.folder import ObservedRun
from kvsim.observed.steps import ObservedStep, ScheduledStep, schedule_step
from kvsim.plumbing.units import PS_PER_S
from kvsim.results.recorder import Recorder
from kvsim.step import StepShape
from kvsim.step_time.calibrated.fitted import Errors
from kvsim.step_time.calibrated.samples import Kind, kind_of
from kvsim.step_time.form import StepTime
from kvsim.validate.run.intervals import mean_interval


class StepDifference(NamedTuple):
    """The first step that was decided otherwise, and the first of its figures that differs."""

    step: int
    figure: str
    recorded: object
    simulated: object


class LockStep(NamedTuple):
    """Recorded steps against the scheduler's decisions.

    shapes: of the leading steps that were decided as recorded. stalls_ps: time of the copies before
    each. difference: the first step that was decided otherwise.
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
    """Schedule the recorded steps again, up to the first that differs.

    The run must have steps.
    """
    assert run.steps is not None
    spec = run.meta.replica_spec()
    scheduler = spec.build()
    intake = Intake(scheduler, Recorder(spec.capacity_bytes), lambda _: None, refuse=True)
    shapes: list[StepShape] = []
    stalls_ps: list[int] = []
    arrived = 0
    for number, step in enumerate(run.steps):
        for request in run.requests[arrived : step.arrived]:
            intake.take(request, request.arrival_ps)
        arrived = step.arrived
        plan, preempted = schedule_step(scheduler)
        shape = plan.shape()
        found = ScheduledStep.of(plan, shape, preempted, scheduler)
        for seq in scheduler.finish(plan):
            intake.left(seq, 0)
        difference = _difference(number, step, found.after(scheduler))
        if difference is not None:
            return LockStep(run.steps, tuple(shapes), tuple(stalls_ps), difference)
        shapes.append(shape)
        stalls_ps.append(sum(ps for ps, _ in plan.stalls))
    return LockStep(run.steps, tuple(shapes), tuple(stalls_ps), None)


def _difference(number: int, recorded: ObservedStep, found: ScheduledStep) -> StepDifference | None:
    for figure in ScheduledStep.model_fields:
        was, now = getattr(recorded, figure), getattr(found, figure)
        if was != now:
            return StepDifference(number, figure, was, now)
    return None


class StepErrors(NamedTuple):
    """Relative errors of the simulated step times, by kind of step.

    intervals: of the mean absolute error and of the bias, by kind. total: of all steps together,
    simulated / recorded - 1.
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
    """Errors of the steps with decisions as recorded, at least one."""
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
