"""Azure LLM inference traces of 2023 and 2024 (github.com/Azure/AzurePublicDataset).

`TIMESTAMP,ContextTokens,GeneratedTokens`; a wall clock with up to 12 fractional digits and, in
2024, an offset from UTC.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from kvsim.plumbing.reading.csv_rows import has_columns
from kvsim.plumbing.reading.files import Text
from kvsim.plumbing.units import PS_PER_S
from kvsim.workload.traces.format import TraceFormat, UncheckedRows
from kvsim.workload.traces.line import Line, csv_lines
from kvsim.workload.traces.record import Trace, TraceRow

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
CLOCK = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,12}))?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Azure(TraceFormat):
    """Azure's trace: wall clock, prompt and output tokens."""

    example = ",".join(COLUMNS)

    @classmethod
    def sniff(cls, lines: list[str]) -> bool:
        """Recognised by its header."""
        return has_columns(lines[0], COLUMNS)

    def read(self, text: Text) -> UncheckedRows:
        """The rows, with times counted from the first row."""
        clock = _Clock()
        first = next(csv_lines(text, COLUMNS), None)
        zero = 0 if first is None else clock.ps(first)
        return UncheckedRows(_rows(text, clock, zero), zero)

    def write(self, trace: Trace) -> Iterator[str]:
        """Write times on the trace's wall clock, or from 1970 on if it has none."""
        origin_ps = trace.origin_ps or 0
        yield ",".join(COLUMNS)
        for row in trace.rows:
            assert row.arrival_ps is not None
            seconds, rest = divmod(origin_ps + row.arrival_ps, PS_PER_S)
            clock = (EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")
            fraction = f"{rest:012d}".rstrip("0").ljust(7, "0")
            yield f"{clock}.{fraction},{row.prompt_tokens},{row.output_tokens}"


def _rows(text: Text, clock: "_Clock", zero: int) -> Iterator[TraceRow]:
    for line in csv_lines(text, COLUMNS):
        at = clock.ps(line) - zero
        yield TraceRow(line.number, at, line.tokens(COLUMNS[1]), line.tokens(COLUMNS[2]))


class _Clock:
    """Parses wall-clock times; each day and offset is parsed only once."""

    def __init__(self) -> None:
        self._days: dict[tuple[str, str | None], int] = {}

    def ps(self, line: Line) -> int:
        """Time of a line in picoseconds since 1970."""
        clock = line.values[COLUMNS[0]]
        match = CLOCK.fullmatch(clock)
        if match is None:
            raise _error(line)
        day, hours, minutes, seconds, fraction, offset = match.groups()
        start = self._days.get((day, offset))
        if start is None:
            start = self._days[day, offset] = _start(line, day, offset)
        if hours > "23" or minutes > "59" or seconds > "59":
            raise _error(line)
        at = start + int(hours) * 3600 + int(minutes) * 60 + int(seconds)
        return at * PS_PER_S + int((fraction or "").ljust(12, "0"))


def _start(line: Line, day: str, offset: str | None) -> int:
    """The day's midnight, in seconds since 1970."""
    try:
        midnight = datetime.fromisoformat(f"{day}T00:00:00{offset or '+00:00'}")
    except ValueError:
        raise _error(line) from None
    return int((midnight - EPOCH).total_seconds())


def _error(line: Line) -> Exception:
    clock, expected = repr(line.values[COLUMNS[0]]), "like 2023-11-16 18:15:46.6805900"
    return line.error("TIMESTAMP is not a clock time", clock, expected)
