"""Resolve `--step-time`: a calibration file, or a form for the recorded model and device."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from kvsim.observed.folder import ObservedRun
from kvsim.step_time.calibrated.file import CalibrationFile, find_calibration
from kvsim.step_time.calibrated.form import CalibratedTime
from kvsim.step_time.correction import Correction
from kvsim.step_time.form import StepTime
from kvsim.step_time.kernels.fitted import FittedOptions
from kvsim.step_time.kernels.form import KernelOptions
from kvsim.step_time.kernels.missing import NotMeasured
from kvsim.step_time.kernels.options import ComposedOptions
from kvsim.step_time.kernels.spread import UsualSpread, spread_of
from kvsim.step_time.roofline import Roofline
from kvsim.validate.served import hardware_of

COMPOSED: dict[str, type[ComposedOptions]] = {"kernels": KernelOptions, "fitted": FittedOptions}
FORMS = ("auto", *COMPOSED, "roofline")


class StepTimes(NamedTuple):
    """The step times of a run before a correction is fitted.

    label is the name of the step-time form. source says where its numbers come from. reported is
    its entry in the output of `--json`. shortest_ps is the time of a one-token step without
    attention, in ps. corrected(correction) builds the corrected step-time form. spread: how far
    servers with these step times differ; None: not known.
    """

    label: str
    source: str
    reported: dict[str, Any]
    shortest_ps: int
    corrected: Callable[[Correction], StepTime]
    spread: UsualSpread | None = None


def step_times_of(run: ObservedRun, named: str | CalibrationFile) -> StepTimes:
    """Step times for the run. `named` is one of `FORMS`, a shipped calibration's name, a path to a
    calibration, or the calibration itself.

    InputError if the run's model or device is unknown, its kernels were not measured, or the
    calibration is of another model, device or sharding.
    """
    if isinstance(named, CalibrationFile):
        return _calibrated(run, named)
    if named == "auto":
        for kind in COMPOSED:
            with suppress(NotMeasured):
                return _composed(run, kind)
    if named in ("auto", "roofline"):
        return _roofline(run)
    if named in COMPOSED:
        return _composed(run, named)
    return _calibrated(run, find_calibration(named, "--step-time"))


def _composed(run: ObservedRun, kind: str) -> StepTimes:
    form = COMPOSED[kind]().build(hardware_of(run.meta, "meta.json."))
    return StepTimes(
        kind,
        form.source,
        {"fit": kind, "source": form.source},
        form.shortest_ps(),
        form.corrected,
        spread_of(form),
    )


def _calibrated(run: ObservedRun, calibration: CalibrationFile) -> StepTimes:
    calibration.check_device(run.meta.gpu, "meta.json.gpu")
    calibration.check_model(run.meta.model_identity(), "meta.json.model")
    calibration.check_tensor_parallel(
        run.meta.tensor_parallel_size, "meta.json.tensor_parallel_size"
    )
    reported = {
        "fit": calibration.fit.label,
        "samples_sha256": calibration.samples.sha256,
        "source": calibration.source,
    }
    return StepTimes(
        calibration.fit.label,
        calibration.source,
        reported,
        calibration.fit.formula.token_cost.ps(1),
        lambda correction: CalibratedTime(calibration, correction),
    )


def _roofline(run: ObservedRun) -> StepTimes:
    hardware = hardware_of(run.meta, "meta.json.")
    form = Roofline().build(hardware)
    source = f"the figures of {hardware.model.name} and {hardware.device.name}"
    return StepTimes(
        "roofline",
        source,
        {"fit": "roofline", "source": source},
        form.base_ps,
        form.corrected,
    )
