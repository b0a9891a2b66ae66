"""Full output of `kvsim run`: tables as wide as the terminal, and the sentences."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kvsim.report.answer import answer
from kvsim.report.classes import LOOKS
from kvsim.report.columns import Cell, Row, tables
from kvsim.report.measured import measured_table
from kvsim.report.measures import best, shown
from kvsim.report.numbers import count, number, percent, seconds
from kvsim.report.parts import part_rows
from kvsim.report.remarks import remarks
from kvsim.report.words import paragraphs
from kvsim.results.result import Result
from kvsim.results.summary import RunSummary, WindowSummary

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WORK = (
    *("finished", "rejected", "makespan", "requests_per_s", "tokens_per_s", "running"),
    *("preemptions", "copied", "hits"),
)
_WAITS = ("ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99", "e2e_p50", "e2e_p99")


def print_result(result: Result, console: "Console") -> None:
    """Print the answer to the scenario's question, the tables of throughput, latencies and memory,
    then sentences and remarks.
    """
    found = answer(result)
    if found is not None:
        console.print(found, markup=False, highlight=False)
        console.print()
    runs = [run.summary for run in result.runs]
    fleets = [_measures(names, result.fleets) for names in (_WORK, _WAITS)] if result.fleets else []
    parts = (
        _measured(result),
        *fleets,
        _measures(_WORK, runs),
        _measures(_WAITS, runs),
        _window(runs),
        _memory(runs),
    )
    for part in parts:
        for table in _fitted(part, console.width):
            console.print(table)
            console.print()
    for text in paragraphs(result):
        console.print(text, markup=False, highlight=False)
        console.print()
    notes = remarks(result)
    beside = measured_table(result)
    if beside is not None:
        notes = [beside.note, *notes]
    for remark in notes:
        console.print(f"note: {remark}", markup=False, highlight=False)
    if notes:
        console.print()


def _measured(result: Result) -> "_Part":
    """A table of the real server's measurements next to each run."""
    table = measured_table(result)
    if table is None:
        return _Part("", [], [])
    rows = [
        Row(Cell(row.name), [Cell(row.measured), *(Cell(text) for run in row.runs for text in run)])
        for row in table.rows
    ]
    return _Part("", table.heads(), rows)


def _measures(names: Sequence[str], runs: Sequence[RunSummary]) -> "_Part":
    """A table of key numbers with a row per run; the best value of a column is bold."""
    measures = shown(names, runs)
    bests = [best(measure, runs) for measure in measures]
    rows = [
        Row(
            Cell(run.label),
            [
                Cell(measure.text(run), "bold" if index in top else "")
                for measure, top in zip(measures, bests, strict=True)
            ],
        )
        for index, run in enumerate(runs)
    ]
    return _Part("", [measure.short for measure in measures], rows)


def _window(runs: Sequence[RunSummary]) -> "_Part":
    """A table of the numbers in each run's measurement window."""
    windows = [(run.label, run.window) for run in runs if isinstance(run.window, WindowSummary)]
    rows = [
        Row(
            Cell(label),
            [
                Cell(seconds(window.start_s)),
                Cell(seconds(window.end_s)),
                Cell(count(window.requests)),
                Cell(number(window.output_tokens_per_s)),
                Cell(number(window.running_mean)),
                Cell(number(window.waiting_mean)),
                Cell(seconds(window.ttft_s.p50)),
            ],
        )
        for label, window in windows
    ]
    given = any(window.found == "given" for _, window in windows)
    heads = ["from", "to", "requests", "tok/s", "running", "waiting", "TTFT p50"]
    return _Part("in the window" if given else "while steady", heads, rows)


def _memory(runs: Sequence[RunSummary]) -> "_Part":
    """A table of the ledger's time-mean in percent of the pool: a row per class that occurs,
    followed by rows of its parts.
    """
    shares = [run.memory.time_mean for run in runs]
    rows = []
    for look in LOOKS:
        if any(share[look.name] for share in shares):
            cells = [Cell(percent(share[look.name])) for share in shares]
            rows.append(Row(Cell(f"\N{BLACK SQUARE} {look.name}", look.colour), cells))
        for part, texts in part_rows(runs, look.name):
            rows.append(Row(Cell(f"  {part.words}"), [Cell(text) for text in texts]))
    return _Part("mean of the pool", [run.label for run in runs], rows)


def _fitted(part: "_Part", width: int) -> Iterator["Table"]:
    if part.rows:
        yield from tables(part.first, part.heads, part.rows, width)


class _Part(NamedTuple):
    """One table of the report, which may print as several if it is too wide."""

    first: str
    heads: Sequence[str]
    rows: Sequence[Row]
