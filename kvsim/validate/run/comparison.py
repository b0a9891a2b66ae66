"""Comparison of a real engine's run with the simulator.

The folder's requests arrive at their recorded times, under the engine's recorded settings. The
simulated engine's results are compared with the real ones.
"""

from pathlib import Path
from typing import Any, NamedTuple

from kvsim.observed.folder import ObservedRun
from kvsim.step_time.calibrated.file import CalibrationFile
from kvsim.step_time.correction import NONE
from kvsim.step_time.form import StepTime
from kvsim.validate.run.curves import Curves, curves
from kvsim.validate.run.errors import (
    Latencies,
    latencies,
    recorded_times,
    relative,
    simulated_times,
)
from kvsim.validate.run.fitting.fit import RunFit, fit_run
from kvsim.validate.run.fitting.parts import Parts
from kvsim.validate.run.intervals import Interval, latency_intervals
from kvsim.validate.run.memory import MemoryErrors, memory_errors, recorded_held
from kvsim.validate.run.replay import Progress, Replay, replay
from kvsim.validate.run.step_times import StepTimes, step_times_of
from kvsim.validate.run.steps import LockStep, StepErrors, lock_step, step_errors
from kvsim.version import VERSION


class StepByStep(NamedTuple):
    """Comparisons that need a recording of every step.

    lock_step compares the scheduler's decisions, independent of time. times has the errors of the
    durations of steps with equal decisions; None if there is no such step. memory compares the KV
    pool over time.
    """

    lock_step: LockStep
    times: StepErrors | None
    memory: MemoryErrors

    def summary(self) -> dict[str, Any]:
        """The entries of these comparisons in the output of `--json`."""
        return {
            "lock_step": self.lock_step.summary(),
            "step_time_errors": self.times and self.times.summary(),
            "memory": self.memory._asdict(),
        }


class RunComparison(NamedTuple):
    """A recorded run, its simulation, and the errors.

    fit has the correction fitted on the first part of the run; None: nothing was fitted. reported
    has the indices of the requests with compared latencies: with a fit those outside the first
    part, else all. intervals are 95 % ranges of the errors of mean latencies. curves compares the
    logs of the whole run; None without a recorded log. steps is set for runs that kvsim itself
    recorded.
    """

    run: ObservedRun
    times: StepTimes
    fit: RunFit | None
    reported: list[int]
    replay: Replay
    recorded: Latencies
    simulated: Latencies
    intervals: dict[str, Interval]
    curves: Curves | None
    steps: StepByStep | None = None

    def summary(self) -> dict[str, Any]:
        """The output of `--json`. Errors are signed fractions, times in seconds."""
        meta, steps = self.run.meta, self.replay.steps
        lock_step = self.steps.summary() if self.steps is not None else {}
        return {
            "kvsim": VERSION,
            "run": {
                "name": self.run.name,
                "model": meta.model,
                "gpu": meta.gpu,
                **meta.engine_facts(),
                "requests": len(self.run.rows),
                "source": meta.source,
                "assumed": list(self.run.assumptions),
            },
            "step_time": self.times.reported,
            "fit": self.fit and self.fit.summary(),
            "reported_requests": len(self.reported),
            "errors": relative(self.simulated, self.recorded),
            "mean_errors_95": self.intervals,
            "recorded": self.recorded,
            "simulated": self.simulated,
            "curves": self.curves and self.curves.summary(),
            "clock_ahead_s": self.curves and self.curves.clock_ahead_s,
            "steps": steps,
            "steps_outside_domain": self.replay.outside_domain / steps,
            "preemptions": self.replay.preemptions,
            **lock_step,
        }


def compare_run(
    folder: Path,
    step_time: str | CalibrationFile,
    fit_share: float | None = None,
    fit_form: str | None = None,
    progress: Progress | None = None,
) -> RunComparison:
    """Replay the run in `folder` with the step times that `step_time` names.

    fit_share: fit a correction on the requests answered within this fraction of the run's time, and
    compare the latencies of the other requests only. fit_form is the correction's form; None
    chooses one. progress is called with (task, requests that have left the engine, all requests).

    InputError if the folder is not an observed run, or the step times are of another model, device
    or sharding.
    """
    run = ObservedRun.read(folder)
    times = step_times_of(run, step_time)
    fit, reported = None, list(range(len(run.rows)))
    if fit_share is not None:
        parts = Parts(run, fit_share)
        fit, reported = fit_run(run, parts, times, fit_form, progress), parts.rest
    form = times.corrected(fit.correction if fit is not None else NONE)
    found = replay(run, form, progress=progress)
    return RunComparison(
        run=run,
        times=times,
        fit=fit,
        reported=reported,
        replay=found,
        recorded=latencies(run, recorded_times(run), reported),
        simulated=latencies(run, simulated_times(found), reported),
        intervals=latency_intervals(run, found, reported),
        curves=curves(run, found.records),
        steps=_step_by_step(run, found, form),
    )


def _step_by_step(run: ObservedRun, found: Replay, form: StepTime) -> StepByStep | None:
    if run.steps is None:
        return None
    again = lock_step(run)
    return StepByStep(
        again,
        step_errors(again, form) if again.shapes else None,
        memory_errors(recorded_held(run), found.held),
    )
