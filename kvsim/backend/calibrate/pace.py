"""Rescale a calibration to the speed that the machine had during one run."""

from kvsim.observed.folder import ObservedRun
from kvsim.observed.own_meta import ObservedMeta
from kvsim.plumbing.errors import InputError
from kvsim.step_time.calibrated.file import CalibrationFile
from kvsim.step_time.calibrated.fit import fit


def at_pace_of(run: ObservedRun, calibration: CalibrationFile) -> CalibrationFile:
    """The calibration with its samples scaled by one factor, and fitted again.

    The factor is the duration of the pace step in the run over that in the calibration.

    No step time of the run is used. InputError if run or calibration has no pace.
    """
    meta, measured = run.meta, calibration.measured
    now_s = meta.pace_s if isinstance(meta, ObservedMeta) else None
    then_s = measured.method.get("pace_s") if measured is not None else None
    rows = calibration.samples.embedded
    if now_s is None or then_s is None or measured is None or not rows:
        raise InputError(
            "both the run and the calibration must tell the machine's pace",
            where="pace_s",
            value=f"{now_s} of the run, {then_s} of the calibration",
            remedy="observe with --clock cpu, and calibrate on a CPU with this version",
        )
    factor = now_s / float(then_s)
    scaled = tuple(
        row.model_copy(
            update={
                name: value * factor
                for name in ("seconds", "seconds_min", "seconds_p90")
                if (value := getattr(row, name)) is not None
            }
        )
        for row in rows
    )
    grid = [row.sample() for row in scaled if row.source == "grid"]
    method = measured.method | {"pace_s": now_s, "brought_to_the_pace_of": run.name}
    return calibration.model_copy(
        update={
            "measured": measured.model_copy(update={"method": method}),
            "samples": calibration.samples.model_copy(update={"embedded": scaled}),
            "fit": fit(grid, resamples=2),
        }
    )
