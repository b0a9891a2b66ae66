"""BurstGPT (github.com/HPMLL/BurstGPT): seconds, model, tokens; later releases add sessions."""

from collections.abc import Iterator

from kvsim.plumbing.reading.csv_rows import (
    columns,
    has_columns,
    header_of,
    numbered_rows,
    one_line,
)
from kvsim.plumbing.reading.files import Text
from kvsim.plumbing.units import PS_PER_S
from kvsim.workload.text import scaled_time, whole_number
from kvsim.workload.traces.format import SESSIONS, TraceFormat, UncheckedRows
from kvsim.workload.traces.record import Trace, TraceRow
from kvsim.workload.traces.units import decimal_text

COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")
SESSION, ELAPSED = "Session ID", "Elapsed time"
UNKNOWN = ("unknown", "API log", "")


class BurstGPT(TraceFormat):
    """Columns are found by name; failed requests have no response (see drop_failed)."""

    carries = frozenset({SESSIONS})
    example = ",".join(COLUMNS)

    @classmethod
    def sniff(cls, lines: list[str]) -> bool:
        """By its header."""
        return has_columns(lines[0], (COLUMNS[0], *COLUMNS[2:4]))

    def read(self, text: Text) -> UncheckedRows:
        """labels: model, log type, elapsed time."""
        return UncheckedRows(_rows(text, columns(text, COLUMNS)))

    def write(self, trace: Trace) -> Iterator[str]:
        """With the session columns of later releases where the trace has sessions."""
        grouped = any(row.session is not None for row in trace.rows)
        extra = [SESSION, ELAPSED] if grouped else []
        yield one_line([COLUMNS[0], *extra, *COLUMNS[1:]])
        for row in trace.rows:
            assert row.arrival_ps is not None
            own = trace.format == "burstgpt"
            model, log_type, elapsed = row.labels if own else UNKNOWN
            session = [row.session or "", elapsed] if grouped else []
            lengths = [row.prompt_tokens, row.output_tokens, row.prompt_tokens + row.output_tokens]
            at = decimal_text(row.arrival_ps, PS_PER_S)
            yield one_line([at, *session, model, *lengths, log_type])


def _rows(text: Text, places: list[int]) -> Iterator[TraceRow]:
    time, model, prompt, output, _, log_type = places
    header = header_of(text.lines[0])
    session = header.index(SESSION) if SESSION in header else None
    elapsed = header.index(ELAPSED) if ELAPSED in header else None
    for line, fields in numbered_rows(text):
        took = "" if elapsed is None else fields[elapsed]
        yield TraceRow(
            line,
            scaled_time(fields[time], PS_PER_S, text.name, line, COLUMNS[0]),
            whole_number(fields[prompt], text.name, line, COLUMNS[2], 0),
            whole_number(fields[output], text.name, line, COLUMNS[3], 0),
            session=None if session is None else fields[session] or None,
            labels=(fields[model], fields[log_type], took),
        )
