"""The answer as text tables: totals, groups, other tools, repeats, refusals."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from evidence.points.errors import (
    GROUPINGS,
    LATENCIES,
    PointErrors,
    Totals,
    beside,
    grouped,
    refusals,
    totals,
)
from evidence.points.outcome import PointOutcome
from evidence.points.repeats import Spread, repeats, spread

HEADS = (
    *("", "rows", "TPOT median", "mean", "bias", "p90"),
    *("TTFT median", "mean", "bias", "p90"),
)
ROW_HEADS = (
    *("row", "engine", "model", "device", "precision", "split", "ISL", "OSL", "clients"),
    *("TTFT measured, ms", "simulated, ms", "error", "TPOT measured, ms", "simulated, ms", "error"),
)


class PointTable(NamedTuple):
    """A table: title, note below it, names of the columns, and rows with a cell per column."""

    title: str
    note: str
    heads: Sequence[str]
    rows: list[tuple[str, ...]]

    @property
    def sentence(self) -> str:
        """The note as a sentence; empty if there is none."""
        return f"{self.note[0].upper()}{self.note[1:]}." if self.note else ""


class Answer(NamedTuple):
    """The answer without its rows: errors in all and by tool, refusals, and repeats."""

    everything: Totals
    groups: dict[str, list[Totals]]
    beside: list[Totals]
    refused: list[tuple[str, int]]
    repeats: dict[str, Spread]

    @classmethod
    def of(cls, outcomes: Sequence[PointOutcome]) -> "Answer":
        """The answer for these outcomes."""
        again = repeats(outcome.row for outcome in outcomes)
        return cls(
            totals(outcomes),
            {by: grouped(outcomes, by) for by in GROUPINGS},
            beside(outcomes),
            refusals(outcomes),
            {latency: spread(again, latency) for latency in LATENCIES},
        )

    def as_dict(self) -> dict[str, Any]:
        """The answer for `--json`."""
        return {
            "all": _plain(self.everything),
            "groups": {by: [_plain(each) for each in found] for by, found in self.groups.items()},
            "beside": [_plain(each) for each in self.beside],
            "refused": [{"reason": reason, "rows": count} for reason, count in self.refused],
            "repeats": {latency: each._asdict() for latency, each in self.repeats.items()},
        }

    def tables(self) -> list[PointTable]:
        """The whole answer as tables of text."""
        note = (
            "size of simulated / measured - 1: median, mean and 90th percentile; bias: the median "
            "with its sign; rows: those with an answer"
        )
        found = [PointTable("All points", note, HEADS, [_cells(self.everything)])]
        for by, each in self.groups.items():
            if by != "servers" or len(each) > 1:  # only disaggregated rows may leave them out
                found.append(PointTable(f"By {by}", note, HEADS, [_cells(one) for one in each]))
        if self.beside:
            rows = [
                _cells(one._replace(group=f"{one.tool}, on {one.group}")) for one in self.beside
            ]
            found.append(
                PointTable("Beside other tools", "on the rows that both answer", HEADS, rows)
            )
        rows = [_spread(latency, each) for latency, each in self.repeats.items()]
        heads = (
            *("", "configurations with several rows", "rows that repeat a measurement"),
            *("measured again", "median spread", "mean", "p90"),
        )
        note = "largest / smallest - 1 of one configuration's measurements: the floor of any error"
        found.append(PointTable("Repeats", note, heads, rows))
        if self.refused:
            reasons: list[tuple[str, ...]] = [(why, str(count)) for why, count in self.refused]
            found.append(
                PointTable("Refused", "rows without an answer", ("reason", "rows"), reasons)
            )
        return found


def markdown(tables: Iterable[PointTable]) -> str:
    """The tables in Markdown, each under its title."""
    parts = []
    for table in tables:
        lines = [f"| {' | '.join(table.heads)} |", f"|{'---|' * len(table.heads)}"]
        lines += [f"| {' | '.join(row)} |" for row in table.rows]
        parts.append(f"## {table.title}\n\n{table.sentence}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def row_table(outcomes: Iterable[PointOutcome]) -> PointTable:
    """Every outcome, with its errors or the reason why there are none."""
    rows = []
    for outcome in outcomes:
        cells = outcome.as_row()
        labels = ("id", "engine", "model", "device", "precision", "split", "isl", "osl", "clients")
        found = [str(cells[label]) for label in labels]
        if outcome.simulated is None:
            rows.append((*found, f"refused: {outcome.refused}", *[""] * 5))
            continue
        for latency in LATENCIES:
            measured, ms = cells[f"measured_{latency}_ms"], cells[f"{latency}_ms"]
            found += [f"{measured:.2f}", f"{ms:.2f}", _signed(cells[f"{latency}_error"])]
        rows.append(tuple(found))
    return PointTable("Every row", "nothing is left out", ROW_HEADS, rows)


def _plain(found: Totals) -> dict[str, Any]:
    return {
        key: value._asdict() if isinstance(value, PointErrors) else value
        for key, value in found._asdict().items()
    }


def _cells(found: Totals) -> tuple[str, ...]:
    cells = [found.group, f"{found.ran:,} of {found.rows:,}"]
    for errors in (found.tpot, found.ttft):
        if errors is None:
            cells += [""] * 4
            continue
        cells += [_share(errors.median_abs), _share(errors.mean_abs), _signed(errors.bias)]
        cells.append(_share(errors.p90_abs))
    return tuple(cells)


def _spread(latency: str, found: Spread) -> tuple[str, ...]:
    shares = (found.median, found.mean, found.p90)
    counts = (found.configurations, found.copies, found.measured_again)
    return (latency.upper(), *map(str, counts), *map(_share, shares))


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _signed(error: float) -> str:
    return f"{100 * error:+.1f} %"
