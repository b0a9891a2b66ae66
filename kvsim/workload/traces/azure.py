"""Azure LLM inference traces of 2023 and 2024 (github.com/Azure/AzurePublicDataset).

`TIMESTAMP,ContextTokens,GeneratedTokens`; a wall clock with up to 12 fractional digits and, in
2024, an offset from UTC.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from kvsim.plumbing.reading.csv_rows import columns, has_columns, numbered_rows
from kvsim.plumbing.reading.files import Text, row_error
from kvsim.plumbing.units import PS_PER_S
from kvsim.workload.text import whole_number
from kvsim.workload.traces.format import TraceFormat, UncheckedRows
from kvsim.workload.traces.record import Trace, TraceRow

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
CLOCK = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,12}))?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Azure(TraceFormat):
    """Wall clock, prompt and output tokens."""

    example = ",".join(COLUMNS)

    @classmethod
    def sniff(cls, lines: list[str]) -> bool:
        """By its header."""
        return has_columns(lines[0], COLUMNS)

    def read(self, text: Text) -> UncheckedRows:
        """Times count from the first row."""
        places = columns(text, COLUMNS)
        clock = _Clock(text.name)
        first = next((fields for _, fields in numbered_rows(text)), None)
        zero = clock.ps(first[places[0]], 2) if first else 0
        return UncheckedRows(_rows(text, places, clock, zero), zero)

    def write(self, trace: Trace) -> Iterator[str]:
        """On the trace's wall clock, or from 1970 on where it has none."""
        origin_ps = trace.origin_ps or 0
        yield ",".join(COLUMNS)
        for row in trace.rows:
            assert row.arrival_ps is not None
            seconds, rest = divmod(origin_ps + row.arrival_ps, PS_PER_S)
            clock = (EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")
            fraction = f"{rest:012d}".rstrip("0").ljust(7, "0")
            yield f"{clock}.{fraction},{row.prompt_tokens},{row.output_tokens}"


def _rows(text: Text, places: list[int], clock: "_Clock", zero: int) -> Iterator[TraceRow]:
    time, prompt, output = places
    for line, fields in numbered_rows(text):
        at = clock.ps(fields[time], line) - zero
        yield TraceRow(
            line,
            at,
            whole_number(fields[prompt], text.name, line, COLUMNS[1], 0),
            whole_number(fields[output], text.name, line, COLUMNS[2], 0),
        )


class _Clock:
    """Reads wall clocks; each day and offset is worked out once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._days: dict[tuple[str, str | None], int] = {}

    def ps(self, clock: str, line: int) -> int:
        """Picoseconds since 1970."""
        match = CLOCK.fullmatch(clock)
        if match is None:
            raise self._error(clock, line)
        day, hours, minutes, seconds, fraction, offset = match.groups()
        start = self._days.get((day, offset))
        if start is None:
            start = self._days[day, offset] = self._start(clock, line, day, offset)
        if hours > "23" or minutes > "59" or seconds > "59":
            raise self._error(clock, line)
        at = start + int(hours) * 3600 + int(minutes) * 60 + int(seconds)
        return at * PS_PER_S + int((fraction or "").ljust(12, "0"))

    def _start(self, clock: str, line: int, day: str, offset: str | None) -> int:
        try:
            midnight = datetime.fromisoformat(f"{day}T00:00:00{offset or '+00:00'}")
        except ValueError:
            raise self._error(clock, line) from None
        return int((midnight - EPOCH).total_seconds())

    def _error(self, clock: str, line: int) -> Exception:
        expected = "like 2023-11-16 18:15:46.6805900"
        return row_error(self._name, line, "TIMESTAMP is not a clock time", repr(clock), expected)
