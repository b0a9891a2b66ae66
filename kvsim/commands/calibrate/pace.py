"""`kvsim calibrate pace RUN`: rescale a calibration to the machine's speed in a recorded run."""

from pathlib import Path
from typing import Annotated

import typer


def pace(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="A folder of `kvsim observe --clock cpu`; over kernels, of any recorded run.",
        ),
    ],
    calibration: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="A calibration: a .json file, or the name of a shipped one. Or kernels or fitted: "
            "a few numbers over that step time, fitted on the first third of the run.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE2", help="Output file: the new calibration, or a [step_time] table."
        ),
    ],
) -> None:
    """Scale step times to the pace that a machine had in a run.

    A CPU's calibration takes the pace that the run recorded, and no step of the run itself. Over
    kernels, a few numbers are fitted on the first third of the run and tested on the rest.
    """
    from kvsim.commands.calibrate.composed import COMPOSED, pace_over

    if calibration in COMPOSED:
        pace_over(calibration, run, out)
        return
    from rich.console import Console

    from kvsim.backend.calibrate.pace import at_pace_of
    from kvsim.observed.folder import ObservedRun
    from kvsim.step_time.calibrated.file import find_calibration, write_calibration

    before = find_calibration(calibration, "--calibration")
    after = at_pace_of(ObservedRun.read(run), before)
    write_calibration(out, after)
    assert before.measured is not None
    assert after.measured is not None
    factor = after.measured.method["pace_s"] / before.measured.method["pace_s"]
    Console(highlight=False).print(f"the machine took {factor:.3f} times as long; written to {out}")
