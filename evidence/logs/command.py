"""`kvsim validate logs`: size the KV pool of logged servers, and compare it with their logs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvsim.commands.arguments import AsJson

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from evidence.logs.outcome import Outcome
    from evidence.logs.summary import PoolErrors, Summary


def logs(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.csv",
            help="One start-up log per row; reports/startup-logs/README.md lists the columns.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Size the KV pool of every server in FILE.csv and compare it with what its log printed."""
    from evidence.logs.outcome import compare
    from evidence.logs.row import read_rows
    from evidence.logs.summary import summarise

    outcomes = [compare(row) for row in read_rows(file)]
    summary = summarise(outcomes)
    if as_json:
        found = {
            "summary": {
                **{key: _plain(value) for key, value in summary._asdict().items()},
                "answered": summary.answered,
            },
            "rows": [outcome._asdict() for outcome in outcomes],
        }
        typer.echo(json.dumps(found, indent=2))
        return
    from rich.console import Console

    console = Console()
    console.print(_table(outcomes))
    for line in (*_reasons(outcomes), "", *_words(summary)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _plain(value: "int | PoolErrors") -> object:
    return value if isinstance(value, int) else value._asdict()


def _table(outcomes: "Sequence[Outcome]") -> "Table":
    from kvsim.commands.terminal_tables import plain_table

    title = "KV pool of one GPU, GiB (* the log leaves a setting open)"
    heads = ("log", "model", "gpu", ">log says", ">kvsim", ">error", ">tokens")
    table = plain_table(*heads, title=title)
    for column in table.columns[:3]:
        column.max_width = 42
    for outcome in outcomes:
        if outcome.state == "sized":
            found = (_gib(outcome.log_gib), _gib(outcome.pool_gib), _percent(outcome.error))
            open_ = "*" if outcome.assumed else ""
            tokens = _percent(outcome.tokens_error)
            table.add_row(outcome.id + open_, outcome.model, outcome.gpu, *found, tokens)
    return table


def _reasons(outcomes: "Sequence[Outcome]") -> "Iterator[str]":
    for state, words in (("refused", "Refused"), ("unknown", "Not known")):
        rows = [outcome for outcome in outcomes if outcome.state == state]
        yield from ([words] if rows else [])
        yield from (f"  {row.id}  {row.model}: {row.reason}" for row in rows)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{round(100 * value, 1) + 0.0:+.1f} %"  # never -0.0


def _gib(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _words(summary: "Summary") -> "Iterator[str]":
    yield (
        f"{summary.rows} logs: {summary.sized} sized, {summary.refused} refused for a stated "
        f"reason, {summary.unknown} not known ({100 * summary.answered:.0f} % answered)"
    )
    for words, errors in (
        ("error of the pool", summary.pool),
        ("  where no setting is left open", summary.described),
        ("error of the tokens in the log's own pool", summary.tokens),
    ):
        if errors.median is not None and errors.p90 is not None and errors.worst is not None:
            yield (
                f"{words}: median {100 * errors.median:.2f} %, 90th percentile "
                f"{100 * errors.p90:.2f} %, worst {100 * errors.worst:.1f} % of {errors.rows}"
            )
