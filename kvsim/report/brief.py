"""Short output of `kvsim run`: the answer, one table, the pool, the bottleneck and the next
command.

It fits a terminal of 24 lines and 80 columns; `kvsim.report.terminal` prints everything.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from kvsim.report import numbers
from kvsim.report.answer import answer
from kvsim.report.bottleneck import limits
from kvsim.report.classes import LOOKS
from kvsim.report.columns import Cell, Row, tables
from kvsim.report.measured import measured_table
from kvsim.report.measures import MEASURES, Measure, best, shown
from kvsim.report.remarks import remarks
from kvsim.report.screen import LINES, height, print_plain
from kvsim.report.turn_words import tier_room, turn_lines
from kvsim.report.words import paragraphs, wasted
from kvsim.results.result import Result
from kvsim.results.summary import RunSummary
from kvsim.step_time.kernels.expected import interval_in_brief
from kvsim.workload import GENERATED

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
_STATISTICS = ("mean", "p50", "p99")
_ACROSS = (
    *("finished", "rejected", "requests_per_s", "tokens_per_s", "running", "preemptions"),
    *("hits", "ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99", "e2e_p50"),
)
_DOWN = (
    "finished",
    "requests_per_s",
    "tokens_per_s",
    "running",
    "ttft_p50",
    "ttft_p99",
    "tpot_p50",
)
_MOST_TURN_LINES = 3
_MOST_ACROSS = 5  # runs that stand side by side
_TABLE_HEAD = 2  # the names of the columns, and the rule below
_ONE_REMARK = 1  # or the line that counts them
_DROPPED = ("TPOT p99", "KV cached", "running", "hits", "E2E p50", "TTFT p50", "preempt")
# Of what was measured, in the order in which benchmarks print it.
_MEASURED = (
    *("requests per second", "output tokens per second"),
    *("TTFT, mean", "TTFT, p50", "TTFT, p99", "TPOT, mean", "TPOT, p99", "E2E, mean", "E2E, p99"),
    *("running, mean", "pool in use, mean"),
)


def print_brief(result: Result, console: "Console", scenario: str) -> None:
    """Print the answer, a table, the bottleneck and the next command, in at most LINES lines of 80
    columns.

    scenario: the scenario argument and the --set options as typed, to print in the next command. A
    last line counts rows and remarks that do not fit.
    """
    runs: Sequence[RunSummary] = result.fleets or [run.summary for run in result.runs]
    head = answer(result) or paragraphs(result)[0]
    pool = [*_pool(runs), *islice(turn_lines(result), _MOST_TURN_LINES), *tier_room(result)]
    after = [
        # Between settings of one server the error is smaller, so several runs print none.
        *filter(None, [interval_in_brief(result.served)] if len(runs) == 1 else []),
        *(f"limit: {each}" for each in limits(runs, result.scenario)),
        *_next(result, scenario),
    ]
    room = LINES - sum(height(line, console) for line in (head, "", *pool, *after))
    print_plain(console, head, "")
    for table in _tables(result, runs, console.width, room - _TABLE_HEAD - _ONE_REMARK):
        console.print(table)
        room -= table.row_count + _TABLE_HEAD
    print_plain(console, *pool, *_remarks(result, room, console), *after)


def _tables(result: Result, runs: Sequence[RunSummary], width: int, most: int) -> "Iterator[Table]":
    """One table of at most `most` rows; several tables if the columns do not fit the width."""
    beside = measured_table(result)
    if beside is not None and len(runs) == 1:
        rows = [
            Row(Cell(row.name), [Cell(row.measured), *(Cell(text) for text in row.runs[0])])
            for row in beside.rows
            if row.name in _MEASURED
        ]
        yield from tables("", beside.heads(), rows[:most], width)
    elif len(runs) == 1:
        yield from tables("", _STATISTICS, list(_latencies(runs[0])), width)
    else:
        rows = _across(runs, most)
        across = list(tables("", [run.label for run in runs], rows, width))
        if len(across) == 1 and len(runs) <= _MOST_ACROSS:
            yield from across
        else:
            yield from tables("", [each.short for each in _down(runs)], _rows(runs, most), width)


def _latencies(run: RunSummary) -> Iterator[Row]:
    """One row per latency (TTFT, TPOT, ...), as `vllm bench serve` labels it."""
    for name in _LATENCIES:
        latency = run[name]
        if latency is not None and latency.mean is not None:
            cells = [Cell(numbers.seconds(latency[key])) for key in _STATISTICS]
            yield Row(Cell(name.removesuffix("_s").upper()), cells)


def _across(runs: Sequence[RunSummary], most: int) -> list[Row]:
    """Rows of measures with one column per run; the best value of a row is bold. If there are more
    than `most` rows, the least important are dropped.
    """
    rows = [Row(Cell(measure.short), _cells(measure, runs)) for measure in shown(_ACROSS, runs)]
    for words, share in (("KV used, mean", _used), ("KV cached", _cached), ("KV wasted", wasted)):
        if any(map(share, runs)):
            rows.append(Row(Cell(words), [Cell(numbers.percent(share(run))) for run in runs]))
    dropped = _DROPPED[: max(0, len(rows) - most)]
    return [row for row in rows if row.name.text not in dropped]


def _down(runs: Sequence[RunSummary]) -> list[Measure]:
    return [MEASURES[name] for name in _DOWN if any(MEASURES[name].value(run) for run in runs)]


def _rows(runs: Sequence[RunSummary], most: int) -> list[Row]:
    """One row per run; if there are more than `most`, the last row counts the others."""
    columns = [_cells(measure, runs) for measure in _down(runs)]
    shown_runs = runs if len(runs) <= most else runs[: most - 1]
    rows = [
        Row(Cell(run.label), [column[at] for column in columns])
        for at, run in enumerate(shown_runs)
    ]
    if left := len(runs) - len(rows):
        rows.append(Row(Cell(f"and {left} more"), [Cell("") for _ in columns]))
    return rows


def _cells(measure: Measure, runs: Sequence[RunSummary]) -> list[Cell]:
    top = best(measure, runs)
    return [Cell(measure.text(run), "bold" if at in top else "") for at, run in enumerate(runs)]


def _used(run: RunSummary) -> float:
    return run.memory.time_mean.used


def _cached(run: RunSummary) -> float:
    return run.memory.time_mean.cached


def _pool(runs: Sequence[RunSummary]) -> Iterator[str]:
    """For a single run: a line on throughput, and a line on the use of the KV pool."""
    if len(runs) > 1:
        return
    (run,) = runs
    measures = shown(("requests_per_s", "tokens_per_s", "running", "preemptions", "hits"), runs)
    told = [f"{each.short} {each.text(run)}" for each in measures]
    if run.waiting_mean:
        told.append(f"waiting {numbers.number(run.waiting_mean)}")
    if (changes := getattr(run, "changes", None)) is not None:
        mean, peak = numbers.number(changes.replicas_mean), numbers.count(changes.replicas_peak)
        told.append(f"replicas {mean} (at most {peak})")
    yield ", ".join(told)
    shares = [(run.memory.time_mean.of(look.name), look.name) for look in LOOKS]
    told = [f"{name} {numbers.percent(share)}" for share, name in shares if share >= 0.0005]
    peak = numbers.percent(run.memory.peak_allocated)
    yield f"KV pool {numbers.size(run.memory.capacity_bytes)}: {', '.join(told)}; peak {peak}"


def _next(result: Result, scenario: str) -> Iterator[str]:
    """The command to try next: `capacity` for several replicas, else `doctor` or `run`. For a
    generated load `measure` comes first.
    """
    kind = (result.scenario.get("workload") or {}).get("kind")
    if kind in GENERATED and result.measured is None:
        yield "load: described, not measured; kvsim measure says which numbers decide"
    if result.fleets or result.scenario.get("disaggregation"):
        yield f"next: kvsim capacity {scenario} --slo ttft_s.p99=2 (the highest rate)"
    elif len(result.runs) == 1 or result.measured is not None:
        yield f"next: kvsim doctor {scenario} (the cause and the flag); --verbose prints all"
    else:
        yield f"next: kvsim run {scenario} --out DIR (pictures); --verbose prints all"


def _remarks(result: Result, room: int, console: "Console") -> Iterator[str]:
    """The remarks that fit into `room` lines, and the number of those omitted."""
    beside = measured_table(result)
    notes = [f"note: {each}" for each in ([beside.note] if beside else []) + remarks(result)]
    fitting = 0
    for at, note in enumerate(notes):
        last = at == len(notes) - 1
        if height(note, console) > room - (not last):
            break
        room -= height(note, console)
        fitting += 1
        yield note
    if fitting < len(notes):
        left = numbers.plural(len(notes) - fitting, "more note" if fitting else "note")
        yield f"{left}: --verbose prints {'it' if len(notes) - fitting == 1 else 'them'}"
