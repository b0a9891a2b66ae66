"""BurstGPT (github.com/HPMLL/BurstGPT): seconds, model, tokens; later releases add sessions."""

from collections.abc import Iterator

from kvsim.plumbing.reading.csv_rows import one_line
from kvsim.plumbing.units import PS_PER_S
from kvsim.workload.traces.format import SESSIONS, CsvFormat
from kvsim.workload.traces.line import Line
from kvsim.workload.traces.record import Trace, TraceRow
from kvsim.workload.traces.units import decimal_text

COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")
SESSION, ELAPSED = "Session ID", "Elapsed time"
UNKNOWN = ("unknown", "API log", "")


class BurstGPT(CsvFormat):
    """BurstGPT's CSV, with columns found by name; failed requests have no response (see
    drop_failed).
    """

    carries = frozenset({SESSIONS})
    columns, optional = COLUMNS, (SESSION, ELAPSED)
    signs = (COLUMNS[0], *COLUMNS[2:4])
    example = ",".join(COLUMNS)

    def row(self, line: Line) -> TraceRow:
        """The request of a line. labels: model, log type, elapsed time."""
        return TraceRow(
            line.number,
            line.time(COLUMNS[0], PS_PER_S),
            line.tokens(COLUMNS[2]),
            line.tokens(COLUMNS[3]),
            session=line.get(SESSION) or None,
            labels=(line.values[COLUMNS[1]], line.values[COLUMNS[5]], line.get(ELAPSED) or ""),
        )

    def write(self, trace: Trace) -> Iterator[str]:
        """Write with the session columns of later releases if the trace has sessions."""
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
