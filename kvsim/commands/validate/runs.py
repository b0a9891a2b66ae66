"""`kvsim validate runs FOLDER...`: simulate collections of published runs and report the errors."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.commands.arguments import AsJson
from kvsim.plumbing.errors import InputError

if TYPE_CHECKING:
    from kvsim.step_time.options import StepTimeOptions


def runs(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER", help="Collections of runs, or folders that contain collections."
        ),
    ],
    only: Annotated[
        bool,
        typer.Option("--list", help="List what was read and assumed, and simulate nothing."),
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set an option of the step time."),
    ] = None,
    step_time: Annotated[
        str, typer.Option(metavar="KIND", help="Step time: auto, kernels, fitted or roofline.")
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write runs.json and table.md into DIR.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate published runs under their settings, nothing fitted on them, and say how far each
    is off.
    """
    from rich.console import Console

    from kvsim.commands.answers import status_line
    from kvsim.commands.terminal_tables import numbers_table
    from kvsim.readers.detect import read_runs
    from kvsim.validate.runs.compare import compare_trials
    from kvsim.validate.runs.table import BAND_HEADS, HEADS, band, markdown, rows

    if only:
        found = [(collection, trial) for collection, trial in read_runs(folders)]
        trials: list[dict[str, Any]] = [
            {"collection": collection, "name": trial.name, "requests": len(trial.requests),
             "recorded": dict(trial.recorded), "assumed": list(trial.assumed)}
            for collection, trial in found
        ]  # fmt: skip
        typer.echo(json.dumps(trials, indent=1) if as_json else "\n".join(map(_line, trials)))
        return
    options = _step_time(step_time, set_ or [])
    with status_line("reading the runs") as show:
        compared = compare_trials(folders, options, show)
    summaries = [one.summary() for one in compared]
    if out is not None:
        from kvsim.plumbing.writing import write_text

        names = list(dict.fromkeys(one.collection for one in compared))
        parts = [f"## The band\n\n{markdown(BAND_HEADS, band(compared))}"]
        for name in names:
            own = [one for one in compared if one.collection == name]
            parts.append(f"## {name}\n\n{markdown(HEADS, rows(own))}")
        write_text(out / "runs.json", json.dumps(summaries, indent=1) + "\n")
        write_text(out / "table.md", "\n".join(parts))
    if as_json:
        typer.echo(json.dumps(summaries, indent=1))
        return
    console = Console(highlight=False)
    console.print(numbers_table(*HEADS, title="Simulated / recorded - 1", rows=rows(compared)))
    title = "By GPU: median (middle 80 %)"
    console.print(numbers_table(*BAND_HEADS, title=title, rows=band(compared)))
    if out is not None:
        console.print(f"written to {out}")


def _step_time(kind: str, settings: list[str]) -> "StepTimeOptions":
    from kvsim.step_time import STEP_TIMES

    table = {"kind": kind}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise InputError("not of the form KEY=VALUE", where="--set", value=setting)
        table[key.strip()] = value.strip()
    return STEP_TIMES.parse(table, "--set" if settings else "--step-time")


def _line(trial: dict[str, Any]) -> str:
    return (
        f"{trial['collection']}: {trial['name']}, {trial['requests']:,} requests; recorded "
        f"{', '.join(trial['recorded'])}; assumed: {'; '.join(trial['assumed']) or 'nothing'}"
    )
