"""`kvsim compare DIR DIR...`: stored results side by side."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from kvsim.report.differences import Difference
    from kvsim.report.measures import Measure, Summary

_MEASURES = (
    *("finished", "rejected", "makespan", "requests_per_s", "tokens_per_s", "running"),
    *("ttft_p50", "ttft_p99", "tpot_p50", "e2e_p50", "preemptions", "copied", "hits"),
    "peak_used",
)


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders written by kvsim run --out.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON alone: the summaries and what differs.")
    ] = False,
) -> None:
    """Put stored results side by side: what differs in the scenarios, and in the outcome.

    Runs of the same label stand beside each other, with their change against the first folder.
    """
    from rich.console import Console

    from kvsim.report.differences import differences
    from kvsim.results.store import read_summary

    names = [str(folder) for folder in folders]
    results = [read_summary(folder) for folder in folders]
    differing = differences([result["scenario"] for result in results])
    if as_json:
        answer = {
            "results": [
                {"folder": name, **result} for name, result in zip(names, results, strict=True)
            ],
            "differences": [{"key": each.key, "values": each.values} for each in differing],
        }
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    console = Console()
    if len(folders) > 1:
        console.print(_scenarios(names, differing) if differing else "The scenarios are the same.")
        console.print()
    labels = dict.fromkeys(run["label"] for result in results for run in result["runs"])
    for label in labels:
        runs = [
            next((run for run in result["runs"] if run["label"] == label), None)
            for result in results
        ]
        if len(runs) > 1 and all(_numbers(run) == _numbers(runs[0]) for run in runs):
            console.print(f"{_escape(label)}: the same numbers everywhere")
        else:
            console.print(_runs(label, names, runs))
        console.print()


def _numbers(run: "Summary | None") -> "Summary | None":
    """A run's summary without what differs from machine to machine."""
    return None if run is None else {key: run[key] for key in run if key != "wall_s"}


def _scenarios(names: Sequence[str], differing: "Sequence[Difference]") -> "Table":
    table = _table("scenario", names)
    for key, values in differing:
        table.add_row(_escape(key), *(_escape(_shown(value)) for value in values))
    return table


def _runs(label: str, names: Sequence[str], runs: "Sequence[Summary | None]") -> "Table":
    """One label's key numbers and time-mean of the ledger; a column a folder."""
    from kvsim.report.classes import LOOKS
    from kvsim.report.measures import shown
    from kvsim.report.numbers import NOTHING, percent

    present = [run for run in runs if run is not None]
    table = _table(label, names)
    for measure in shown(_MEASURES, present):
        table.add_row(measure.title, *_cells(measure, runs))
    table.add_section()
    for look in LOOKS:
        shares = [None if run is None else run["memory"]["time_mean"][look.name] for run in runs]
        if any(shares):
            texts = (NOTHING if share is None else percent(share) for share in shares)
            table.add_row(f"{look.name}, mean of the pool", *texts)
    return table


def _cells(measure: "Measure", runs: "Sequence[Summary | None]") -> list[str]:
    """The measure of each run, and its change against the first where that is a ratio."""
    from kvsim.report.numbers import NOTHING

    base = None if runs[0] is None else measure.value(runs[0])
    cells = []
    for run in runs:
        value = None if run is None else measure.value(run)
        change = ""
        if base and value is not None and run is not runs[0]:
            percent = 100 * (value / base - 1)
            change = " [dim]=[/dim]" if value == base else f" [dim]{percent:+.1f} %[/dim]"
        cells.append((NOTHING if run is None else measure.text(run)) + change)
    return cells


def _table(first: str, names: Sequence[str]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(_escape(first), overflow="fold")
    for name in names:
        table.add_column(_escape(name), justify="right", overflow="fold")
    return table


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)
