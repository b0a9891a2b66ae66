"""`kvsim compare DIR DIR...`: stored results side by side."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kvsim.report.columns import Cell, Row
    from kvsim.report.comparison import Comparison, MeasureLine, Side


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Folders written by kvsim run --out.")
    ],
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON only: summaries, differing keys, changes."),
    ] = False,
) -> None:
    """Compare stored results: which scenario keys and which numbers differ.

    Columns show runs with the same label, and the change from the first folder. Green is better,
    red is worse, plain is neutral or from different requests. Shares change in percentage points.
    Folders that differ only in the seed become one column with the mean and its 95 % interval. The
    mean of times is the geometric one.
    """
    from rich.console import Console

    from kvsim.report import comparison
    from kvsim.results.store import read_summary

    names = [str(folder) for folder in folders]
    results = [read_summary(folder) for folder in folders]
    if as_json:
        answer = comparison.as_json(names, results)
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    _print(comparison.compare_results(results), names, Console())


def _print(compared: "Comparison", names: Sequence[str], console: Any) -> None:
    from kvsim.report.columns import tables

    def show(first: str, heads: Sequence[str], rows: "Sequence[Row]") -> None:
        for table in tables(first, heads, rows, console.width):
            console.print(table)
            console.print()

    if len(names) > 1:
        rows = list(_scenario_rows(compared, max(20, (console.width - 30) // len(names))))
        if rows:
            show("scenario", names, rows)
        else:
            console.print("The scenarios are the same.\n")
    heads = [*names, *(["mean of the seeds"] if compared.seeds_only else [])]
    if compared.seeds_only:
        from kvsim.report.intervals import NARROW

        console.print(f"{NARROW}\n", markup=False, highlight=False)
    for side in compared.sides:
        if side.same:
            line = f"{side.label}: the same numbers everywhere\n"
            console.print(line, markup=False, highlight=False)
        else:
            show(side.label, heads, list(_side_rows(side, compared.seeds_only)))
        for note in _notes(side, names):
            console.print(f"note: {note}\n", markup=False, highlight=False)


def _notes(side: "Side", names: Sequence[str]) -> "Iterator[str]":
    """Why a label's changes are not judged better or worse, and the notes on its runs."""
    from kvsim.report.names import listed

    if side.unlike:
        yield side.unlike
    texts: dict[str, list[str]] = {}
    for name, run in zip(names, side.runs, strict=True):
        for note in (run and run.notes) or ():
            texts.setdefault(note.text, []).append(name)
    for text, who in texts.items():
        yield text if len(who) == len(names) else f"{listed(who)}: {text}"


def _scenario_rows(compared: "Comparison", value_width: int) -> "Iterator[Row]":
    from kvsim.report.columns import Cell, Row
    from kvsim.report.wrapping import wrapped

    for at, part in enumerate((compared.changed, compared.found)):
        for index, (key, values) in enumerate(part):
            cells = [Cell(wrapped(_shown(value), value_width)) for value in values]
            yield Row(Cell(key), cells, section=bool(at and not index))


def _side_rows(side: "Side", seeds: bool) -> "Iterator[Row]":
    """Rows of one label: its key numbers and the time-mean of each ledger class, with one cell per
    folder.
    """
    from kvsim.report.classes import LOOKS
    from kvsim.report.columns import Cell, Row
    from kvsim.report.numbers import NOTHING, percent

    for line in side.lines:
        yield Row(Cell(line.measure.title), _cells(line, seeds))
    section = True
    for look in LOOKS:
        shares = side.shares[look.name]
        if any(shares):
            cells = [Cell(NOTHING if share is None else percent(share)) for share in shares]
            blank = [Cell("")] if seeds else []
            yield Row(Cell(f"{look.name}, mean of the pool"), [*cells, *blank], section)
            section = False


def _cells(line: "MeasureLine", seeds: bool) -> "list[Cell]":
    """One measure's value in each run, followed by its change against the first run."""
    from kvsim.report.columns import Cell

    cells = []
    for index, value in enumerate(line.values):
        shown = _moved(line, value) if index else ""
        style = "green" if index in line.better else "red" if index in line.worse else ""
        cells.append(Cell(line.measure.form(value) + shown, style))
    if seeds:
        over = line.over_seeds
        form, text = line.measure.form, ""
        if over is not None and over.by_factors:
            text = f"{form(over.mean)} ({form(over.low)} to {form(over.high)})"
        elif over is not None:
            text = f"{form(over.mean)} ± {form(over.half)}"
        cells.append(Cell(text))
    return cells


def _moved(line: "MeasureLine", value: float | None) -> str:
    """The change of `value` against the first run as text, such as ` +1.5 points`; ` =` if they are
    equal.

    Shares differ in percentage points: a percentage of a percentage would be mistaken for points.
    """
    from kvsim.report.comparison import change
    from kvsim.report.numbers import percent

    first = line.values[0]
    if first is None or value is None or value == first:
        return " =" if first and value == first else ""
    if line.measure.form is percent:
        return f" {100 * (value - first):+.1f} points"
    moved = change(first, value)
    if moved is None:
        return ""
    return f" {100 * moved:+,.{1 if abs(moved) < 10 else 0}f} %"


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return "; ".join(value) or "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
