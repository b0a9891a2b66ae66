"""`kvsim validate points FILE.csv`: simulate measured serving points, and report the errors."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvsim.commands.arguments import AsJson, Jobs
from kvsim.plumbing.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evidence.points.outcome import PointOutcome
    from evidence.points.rows import Point
    from evidence.points.tables import PointTable


class Part(StrEnum):
    """The rows to use: the half for fitting, the half for judging, or all."""

    fit = "fit"
    judge = "judge"
    all = "all"


def points(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.csv",
            help="One point per row, in the columns of AISimulate's accuracy set.",
        ),
    ],
    half: Annotated[
        Part,
        typer.Option(
            help="Half of the rows, by the SHA-256 of the id: 8 to f is for fitting, 0 to 7 for "
            "judging. Of the latter only totals are printed."
        ),
    ] = Part.all,
    every: Annotated[
        int, typer.Option(min=1, metavar="N", help="Only every N-th row, in a shuffled order.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of --every.")] = 0,
    most_clients: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Only rows with at most N clients. Many clients take hours.",
            show_default="no limit",
        ),
    ] = None,
    engine: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only rows of this engine. Repeatable.")
    ] = None,
    mode: Annotated[str, typer.Option(help="Rows to run: agg, disagg or all.")] = "agg",
    step_time: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Step time: auto, kernels, fitted or roofline.",
            show_default="a scenario's default",
        ),
    ] = None,
    estimates: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Another tool's estimates: columns id, NAME_ttft_ms and NAME_tpot_ms.",
        ),
    ] = None,
    jobs: Jobs = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write report.html, points.json, points.md and points.csv here."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate the server of every row in a closed loop and say how far TTFT and TPOT are off."""
    from evidence.points.outcome import simulate_points, some_of
    from evidence.points.rows import read_points, with_estimates
    from evidence.points.tables import Answer
    from kvsim.commands.progress import progress
    from kvsim.step_time import STEP_TIMES

    if step_time is not None:
        STEP_TIMES.parse({"kind": step_time}, "--step-time")
    rows = read_points(file)
    if estimates is not None:
        rows = with_estimates(rows, estimates)
    rows = some_of(_chosen(rows, half, engine or [], mode, file), every, seed)
    if most_clients is not None:
        rows = _with_clients(rows, most_clients)
    with progress(["points"], "scenarios") as moved:
        outcomes = simulate_points(rows, step_time, jobs, moved)
    answer = Answer.of(outcomes)
    shown = [] if half is Part.judge else outcomes
    found = {
        "file": file.name,
        "half": half.value,
        "step_time": step_time,
        "most_clients": most_clients,
        **answer.as_dict(),
    }
    if out is not None:
        _write(out, found, answer.tables(), shown, outcomes)
    if as_json:
        typer.echo(json.dumps({**found, "rows": [each.as_row() for each in shown]}, indent=1))
        return
    from kvsim.commands.terminal_tables import numbers_table
    from kvsim.commands.terminal_tables import out as stdout

    console = stdout()
    for table in answer.tables():
        title = f"{table.title}: {table.note}"
        console.print(numbers_table(*table.heads, title=title, rows=table.rows))
    if out is not None:
        console.print(f"written to {out}")


def _with_clients(rows: "Sequence[Point]", most: int) -> "list[Point]":
    from evidence.points.labels import split_of

    counts = [row.clients(split_of(row).copies) for row in rows]
    if counts and min(counts) > most:
        raise InputError(
            "every row has more clients", where="--most-clients", value=most,
            limit=f"{min(counts):,} or more",
        )  # fmt: skip
    return [row for row, clients in zip(rows, counts, strict=True) if clients <= most]


def _chosen(
    rows: "Sequence[Point]", half: Part, engines: "Sequence[str]", mode: str, file: Path
) -> "list[Point]":
    modes, named = {row.mode for row in rows}, {row.backend for row in rows}
    for option, value, known in (
        ("--mode", mode, modes | {"all"}),
        *(("--engine", engine, named) for engine in engines),
    ):
        if value not in known:
            raise InputError(
                "no row has it", where=option, value=value, limit=", ".join(sorted(known))
            )
    found = [
        row
        for row in rows
        if (half is Part.all or row.half == half.value)
        and (mode == "all" or row.mode == mode)
        and (not engines or row.backend in engines)
    ]
    if not found:
        raise InputError(
            "no row is left", where=str(file), remedy="drop --half, --engine or --mode"
        )
    return found


def _write(
    out: Path,
    found: "dict[str, object]",
    tables: "Sequence[PointTable]",
    shown: "Sequence[PointOutcome]",
    outcomes: "Sequence[PointOutcome]",
) -> None:
    from evidence.points.page import make_page
    from evidence.points.tables import markdown
    from kvsim.plumbing.reading.csv_rows import one_line
    from kvsim.plumbing.writing import write_text

    write_text(out / "points.json", json.dumps(found, indent=1) + "\n")
    write_text(out / "points.md", markdown(tables))
    title = "Measured points, simulated"
    write_text(out / "report.html", make_page(title, found, tables, shown, outcomes))
    if shown:
        cells = [each.as_row() for each in shown]
        lines = [one_line(list(cells[0]))]
        lines += [
            one_line(["" if cell is None else cell for cell in row.values()]) for row in cells
        ]
        write_text(out / "points.csv", "\n".join(lines) + "\n")
