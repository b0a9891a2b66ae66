"""The short report: three tables of eighty columns or less for the terminal, and the words."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvsim.report.classes import LOOKS
from kvsim.report.measures import Measure, Summary, best, shown
from kvsim.report.numbers import percent
from kvsim.report.words import paragraphs
from kvsim.results.result import Result

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WORK = (
    *("finished", "rejected", "makespan", "requests_per_s", "tokens_per_s", "running"),
    *("preemptions", "copied", "hits"),
)
_WAITS = ("ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99", "e2e_p50", "e2e_p99")


def print_result(result: Result, console: "Console") -> None:
    """Print the work done, the waits, where the memory went, and what it means."""
    runs = [run.summary for run in result.runs]
    for table in (_measures(_WORK, runs), _measures(_WAITS, runs), _memory(runs)):
        console.print(table)
        console.print()
    for paragraph in paragraphs(result):
        console.print(paragraph, markup=False, highlight=False)
        console.print()


def _measures(names: Sequence[str], runs: Sequence[Summary]) -> "Table":
    """Key numbers, one row a run; what reads best in a column is bold."""
    table, measures = _table(), shown(names, runs)
    for measure in measures:
        table.add_column(measure.short, justify="right", no_wrap=True)
    bests = [best(measure, runs) for measure in measures]
    for index, run in enumerate(runs):
        cells = (
            _cell(measure, run, index in top) for measure, top in zip(measures, bests, strict=True)
        )
        table.add_row(_plain(run["label"]), *cells)
    return table


def _memory(runs: Sequence[Summary]) -> "Table":
    """The ledger's time-mean in per cent of the pool: one row a class that occurs."""
    table = _table("mean of the pool")
    for run in runs:
        table.add_column(_plain(run["label"]), justify="right", overflow="fold")
    shares = [run["memory"]["time_mean"] for run in runs]
    for look in LOOKS:
        if any(share[look.name] for share in shares):
            swatch = f"[{look.colour}]\N{BLACK SQUARE}[/] {look.name}"
            table.add_row(swatch, *(percent(share[look.name]) for share in shares))
    return table


def _table(first: str = "") -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column(first, overflow="fold", min_width=10)
    return table


def _cell(measure: Measure, run: Summary, good: bool) -> str:
    text = measure.text(run)
    return f"[bold]{text}[/bold]" if good else text


def _plain(label: str) -> str:
    """A user's label, its brackets not taken for markup."""
    from rich.markup import escape

    return escape(label)
