"""The table of a real server's measurements next to the simulated numbers."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvsim.report import numbers
from kvsim.results.measured import MeasuredPair, MeasuredSummary, compared
from kvsim.results.result import Result
from kvsim.results.summary import RunSummary

_NAMES = {
    "makespan_s": "duration",
    "requests_per_s": "requests per second",
    "output_tokens_per_s": "output tokens per second",
    "running_mean": "running, mean",
    "waiting_mean": "waiting, mean",
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "itl_s": "gap between tokens",
    "e2e_s": "E2E",
    "kv_usage": "pool in use",
}
# What engineers compare; all that was measured is in summary.json.
_SHOWN = ("mean", "p50", "p99", "peak")


class MeasuredRow(NamedTuple):
    """One number, as texts: the measured value, then the simulated value and the difference for
    each run.
    """

    name: str
    measured: str
    runs: tuple[tuple[str, str], ...]


class MeasuredTable(NamedTuple):
    """Measured and simulated numbers. labels: one per run. note: source of the measurements, and
    how the differences are computed.
    """

    labels: tuple[str, ...]
    rows: tuple[MeasuredRow, ...]
    note: str

    def heads(self) -> list[str]:
        """The column heads, without the one of the column of names."""
        if len(self.labels) == 1:
            return ["measured", "simulated", "difference"]
        return ["measured", *(head for label in self.labels for head in (label, "difference"))]


def measured_table(result: Result) -> MeasuredTable | None:
    """The table for a result; None if it has no measurements."""
    if result.measured is None:
        return None
    runs: tuple[RunSummary, ...] = result.fleets or tuple(run.summary for run in result.runs)
    return table_of(result.measured, {run.label: run for run in runs})


def table_of(measured: MeasuredSummary, runs: Mapping[str, Mapping[str, Any]]) -> MeasuredTable:
    """The table of these measurements next to these runs, given by label."""
    columns = [list(compared(measured, run)) for run in runs.values()]
    rows = [
        MeasuredRow(_name(pairs[0].key), _text(pairs[0], pairs[0].measured), _cells(pairs))
        for pairs in zip(*columns, strict=True)
        if pairs[0].key.partition(".")[2] in ("", *_SHOWN)
    ]
    note = (
        f"Measured: {measured.source}. Differences are simulated against measured, of the pool in "
        "points."
    )
    return MeasuredTable(tuple(runs), tuple(rows), note)


def _name(key: str) -> str:
    figure, _, statistic = key.partition(".")
    return ", ".join(filter(None, (_NAMES[figure], statistic)))


def _cells(pairs: Sequence[MeasuredPair]) -> tuple[tuple[str, str], ...]:
    return tuple((_text(pair, pair.simulated), _difference(pair)) for pair in pairs)


def _text(pair: MeasuredPair, value: float | None) -> str:
    if pair.is_share:
        return numbers.percent(value)
    figure = pair.key.partition(".")[0]
    is_time = figure.endswith("_s") and not figure.endswith("_per_s")
    return numbers.seconds(value) if is_time else numbers.number(value)


def _difference(pair: MeasuredPair) -> str:
    if pair.difference is None:
        return numbers.NOTHING
    return f"{100 * pair.difference:+.1f} {'points' if pair.is_share else '%'}"
