"""`kvsim calibrate pace RUN --calibration FILE --out FILE2`: at the pace the machine had then."""

from pathlib import Path
from typing import Annotated

import typer


def pace(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A folder of `kvsim observe --clock cpu`.")
    ],
    calibration: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="A calibration: a .json file, or the name of a shipped one."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE2", help="Output file of the new calibration.")],
) -> None:
    """Bring a CPU's calibration to the pace that a busy machine had in a run; no step of the run
    itself goes into it.
    """
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
