"""`kvsim sweep`: simulate a scenario at many settings."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from kvsim.commands.arguments import (
    MOST_SEEDS,
    AsJson,
    Jobs,
    ScenarioName,
    Verbose,
    run_command,
)
from kvsim.commands.progress import bar
from kvsim.plumbing.process import INTERRUPTED

if TYPE_CHECKING:
    import pandas as pd

    from kvsim.whatif.backends import BackendOptions
    from kvsim.whatif.sweep.sweep import Sweep


def sweep(
    scenario: ScenarioName,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A.B=VALUES",
            help="Values of one key: 1,2,4, or lo:hi:n, or lo:hi:nlog. Whole ends give whole "
            "values. Repeatable.",
        ),
    ] = None,
    zip_: Annotated[
        list[str] | None,
        typer.Option("--zip", metavar="A=1,2;B=3,4", help="Keys that change together."),
    ] = None,
    repeat: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_SEEDS, metavar="SEEDS", help="Run each setting at this many seeds."
        ),
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of journal, table and page. The same command resumes from it. Without it "
            "nothing is kept.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="A.B=VALUE", help="Change one key at every point. Repeatable."
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="MEASURE",
            help="Rank settings by this measure: a short name, or a key of summary.json such as "
            "queue_s.p99, itl_s.p99 or waiting_mean.",
        ),
    ] = "e2e_p50",
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Show the best N.")] = 5,
    jobs: Jobs = None,
    backend: Annotated[
        str, typer.Option(help="Where points run: processes (of this machine), dask or ray.")
    ] = "processes",
    address: Annotated[
        str | None, typer.Option(help="Address of a Dask or Ray cluster (default: start one here).")
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run failed points again.")
    ] = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Simulate many settings on the same requests, and rank them.

    With --out DIR every finished point is kept. After an interruption the same command resumes, and
    runs no finished point again.
    """
    from kvsim.commands.answers import answer
    from kvsim.plumbing.errors import InputError
    from kvsim.plumbing.writing import check_writable
    from kvsim.scenario import load_tables
    from kvsim.whatif.backends import BACKENDS
    from kvsim.whatif.sweep import store
    from kvsim.whatif.sweep.axes import parse_axis, parse_zip
    from kvsim.whatif.sweep.ranking import check_measured, measure_named
    from kvsim.whatif.sweep.sweep import Sweep
    from kvsim.whatif.sweep.sweep_findings import sweep_findings

    if out is None and retry_failed:
        raise InputError("no points are kept", where="--retry-failed", remedy="give --out DIR")
    measure = measure_named(by)
    axes = [*map(parse_axis, vary or ()), *map(parse_zip, zip_ or ())]
    for note in (note for axis in axes for note in axis.notes):
        typer.echo(f"note: {note}", err=True)
    options = BACKENDS.parse({"kind": backend, "jobs": jobs, "address": address}, "--backend")
    plan = Sweep(*load_tables(scenario, set_ or []), axes, repeat)
    try:
        plan.check()
    except InputError as error:
        said = _located(scenario, set_ or [], str(error))
        raise InputError(f"no setting can be run, the first of them: {said}") from None
    if out is None:
        with TemporaryDirectory(prefix="kvsim-sweep-") as folder:
            frame = _run(plan, Path(folder), options, retry_failed, kept=False)
    else:
        check_writable(out)
        frame = _run(plan, out, options, retry_failed)
    if not (frame["status"] == "done").any():
        first = _located(scenario, set_ or [], str(frame["error"].iloc[0]))
        raise InputError(f"every point failed, the first of them by: {first}")
    check_measured(frame, measure)
    if out is not None:
        store.write(out, plan, frame)
    findings = sweep_findings(plan, frame, measure, top, run_command(scenario, set_))
    answer(findings, as_json=as_json, out=out, name="sweep", verbose=verbose, folder=plan.folder)


def _located(scenario: str, changes: list[str], said: str) -> str:
    """The error of a sweep's point; with the file and line if the unchanged scenario has this error
    too.
    """
    from kvsim.plumbing.errors import InputError
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation

    try:
        Simulation(Scenario.load(scenario, changes))
    except InputError as error:
        if error.what in said and (error.value is None or str(error.value) in said):
            return str(error)
    return said


def _run(
    plan: "Sweep", out: Path, options: "BackendOptions", retry_failed: bool, *, kept: bool = True
) -> "pd.DataFrame":
    """Run the sweep with a progress bar on stderr, and return its table. kept: finished points stay
    in `out` if the sweep is interrupted.
    """
    from kvsim.whatif.sweep.journal import SweepJournal

    with SweepJournal(out) as journal, bar("points", "TimeElapsed", "TimeRemaining") as advance:
        try:
            return plan.run(journal, options, retry_failed=retry_failed, progress=advance)
        except KeyboardInterrupt:
            done = sum(point.task.key in journal.outcomes for point in plan.points)
            words = f"interrupted: {done} of {len(plan.points)} points were done"
            if kept:
                words += f" and are kept in {out}; the same command goes on from there"
            typer.echo(words, err=True)
            raise typer.Exit(INTERRUPTED) from None
