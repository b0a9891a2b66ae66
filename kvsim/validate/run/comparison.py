"""A run of a real engine, held against the simulator.

The folder's requests arrive when they did, under the engine's recorded settings; what the simulated
engine then does is compared with what the real one did.
"""

from pathlib import Path
from typing import Any, NamedTuple

from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.units import PS_PER_S
from kvsim.step_time.calibrated.file import CalibrationFile
from kvsim.step_time.calibrated.form import CalibratedTime
from kvsim.validate.run.curves import Curves, curves
from kvsim.validate.run.errors import Latencies, recorded, relative, simulated
from kvsim.validate.run.intervals import Interval, latency_intervals
from kvsim.validate.run.memory import MemoryErrors, memory_errors, recorded_held
from kvsim.validate.run.overhead import fit_overhead, parts
from kvsim.validate.run.replay import Replay, replay
from kvsim.validate.run.steps import LockStep, StepErrors, lock_step, step_errors
from kvsim.version import VERSION


class StepByStep(NamedTuple):
    """What more can be compared where every step was recorded.

    lock_step: the same decisions without time; times: of the steps so decided, None if there is
    none. memory: the pool over time. intervals: of the errors of the mean latencies.
    """

    lock_step: LockStep
    times: StepErrors | None
    memory: MemoryErrors
    intervals: dict[str, Interval]

    def summary(self) -> dict[str, Any]:
        """What `--json` prints besides."""
        return {
            "lock_step": self.lock_step.summary(),
            "step_time_errors": self.times and self.times.summary(),
            "memory": self.memory.summary(),
            "mean_errors_95": self.intervals,
        }


class Comparison(NamedTuple):
    """One comparison.

    overhead_ps: the constant added to every step; fitted: on how many requests (0: it was not).
    recorded, simulated: latencies of the others. curves: the whole run, None where no log was kept.
    steps: of a run that kvsim itself recorded.
    """

    run: ObservedRun
    calibration: CalibrationFile
    overhead_ps: int
    fitted: int
    replay: Replay
    recorded: Latencies
    simulated: Latencies
    curves: Curves | None
    steps: StepByStep | None = None

    def summary(self) -> dict[str, Any]:
        """What `--json` prints. Errors are signed fractions, times in seconds."""
        meta, steps = self.run.meta, self.replay.steps
        told = self.steps.summary() if self.steps is not None else {}
        return {
            "kvsim": VERSION,
            "run": {
                "name": self.run.name,
                "model": meta.model,
                "gpu": meta.gpu,
                **meta.told(),
                "requests": len(self.run.rows),
                "source": meta.source,
                "assumed": list(self.run.assumptions),
            },
            "step_time": {
                "fit": self.calibration.fit.label,
                "samples_sha256": self.calibration.samples.sha256,
                "source": self.calibration.source,
            },
            "overhead_s": self.overhead_ps / PS_PER_S,
            "overhead_fitted_on_requests": self.fitted,
            "reported_requests": len(self.run.rows) - self.fitted,
            "errors": relative(self.simulated, self.recorded),
            "recorded": self.recorded,
            "simulated": self.simulated,
            "curves": self.curves and self.curves.summary(),
            "clock_ahead_s": self.curves and self.curves.clock_ahead_s,
            "steps": steps,
            "steps_outside_domain": self.replay.outside_domain / steps,
            "preemptions": self.replay.preemptions,
            **told,
        }


def compare_run(
    folder: Path, calibration: CalibrationFile, fit_share: float | None = None
) -> Comparison:
    """Replay the run in `folder` with these step times.

    fit_share: fit one constant per step on the requests answered within this share of the run's
    time, and report the latencies of the others alone. InputError if the folder is not an observed
    run, or the calibration is of another model, device or sharding.
    """
    run = ObservedRun.read(folder)
    calibration.check_device(run.meta.gpu, "meta.json.gpu")
    calibration.check_model(run.meta.model_identity(), "meta.json.model")
    calibration.check_tensor_parallel(
        run.meta.tensor_parallel_size, "meta.json.tensor_parallel_size"
    )

    def replay_with(overhead_ps: int) -> Replay:
        return replay(run, CalibratedTime(calibration, overhead_ps))

    overhead_ps, first, rest = 0, list[int](), list(range(len(run.rows)))
    if fit_share is not None:
        first, rest = parts(run, fit_share)
        shortest_ps = calibration.fit.formula.token_cost.ps(1)
        overhead_ps = fit_overhead(run, first, shortest_ps, replay_with)
    found = replay_with(overhead_ps)
    return Comparison(
        run=run,
        calibration=calibration,
        overhead_ps=overhead_ps,
        fitted=len(first),
        replay=found,
        recorded=recorded(run, rest),
        simulated=simulated(run, found, rest),
        curves=curves(run, found.records),
        steps=_step_by_step(run, found, CalibratedTime(calibration, overhead_ps), rest),
    )


def _step_by_step(
    run: ObservedRun, found: Replay, step_time: CalibratedTime, rest: list[int]
) -> StepByStep | None:
    if run.steps is None:
        return None
    again = lock_step(run)
    return StepByStep(
        again,
        step_errors(again, step_time) if again.shapes else None,
        memory_errors(recorded_held(run), found.held),
        latency_intervals(run, found, rest),
    )
