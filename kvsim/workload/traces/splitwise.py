"""splitwise-sim (github.com/Mutinifni/splitwise-sim): request id, arrival in seconds, sizes."""

from collections.abc import Iterator

from kvsim.plumbing.reading.csv_rows import one_line
from kvsim.plumbing.units import PS_PER_S
from kvsim.workload.traces.format import CsvFormat
from kvsim.workload.traces.line import Line
from kvsim.workload.traces.record import Trace, TraceRow
from kvsim.workload.traces.units import decimal_text

COLUMNS = (
    "request_id",
    "request_type",
    "application_id",
    "arrival_timestamp",
    "batch_size",
    "prompt_size",
    "token_size",
)
GENERATIVE, APPLICATION = "2", "0"  # what splitwise-sim's own traces hold


class Splitwise(CsvFormat):
    """splitwise-sim's CSV, only for single requests: a batch size other than 1 is refused."""

    columns = COLUMNS
    example = ",".join(COLUMNS)

    def row(self, line: Line) -> TraceRow:
        """The request of a line. labels: request type, application."""
        if line.tokens("batch_size") != 1:
            raise line.error("a batch of requests", line.values["batch_size"], "batch_size 1")
        return TraceRow(
            line.number,
            line.time("arrival_timestamp", PS_PER_S),
            line.tokens("prompt_size"),
            line.tokens("token_size"),
            id=line.values["request_id"],
            labels=(line.values["request_type"], line.values["application_id"]),
        )

    def write(self, trace: Trace) -> Iterator[str]:
        """One line for each row; rows are numbered if the trace has no request ids."""
        yield ",".join(COLUMNS)
        for index, row in enumerate(trace.rows):
            assert row.arrival_ps is not None
            own = trace.format == "splitwise"
            request_type, application = row.labels if own else (GENERATIVE, APPLICATION)
            name = row.id if own else index
            at = decimal_text(row.arrival_ps, PS_PER_S)
            sizes = [row.prompt_tokens, row.output_tokens]
            yield one_line([name, request_type, application, at, 1, *sizes])
