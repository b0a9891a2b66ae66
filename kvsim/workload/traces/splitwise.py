"""splitwise-sim (github.com/Mutinifni/splitwise-sim): request id, arrival in seconds, sizes."""

from collections.abc import Iterator

from kvsim.plumbing.reading.csv_rows import columns, has_columns, numbered_rows, one_line
from kvsim.plumbing.reading.files import Text, row_error
from kvsim.plumbing.units import PS_PER_S
from kvsim.workload.text import scaled_time, whole_number
from kvsim.workload.traces.format import TraceFormat, UncheckedRows
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


class Splitwise(TraceFormat):
    """Single requests alone: a batch size other than 1 is refused."""

    example = ",".join(COLUMNS)

    @classmethod
    def sniff(cls, lines: list[str]) -> bool:
        """By its header."""
        return has_columns(lines[0], COLUMNS)

    def read(self, text: Text) -> UncheckedRows:
        """labels: request type, application."""
        return UncheckedRows(_rows(text, columns(text, COLUMNS)))

    def write(self, trace: Trace) -> Iterator[str]:
        """Requests are numbered where the trace has no ids of its own."""
        yield ",".join(COLUMNS)
        for index, row in enumerate(trace.rows):
            assert row.arrival_ps is not None
            own = trace.format == "splitwise"
            request_type, application = row.labels if own else (GENERATIVE, APPLICATION)
            name = row.id if own else index
            at = decimal_text(row.arrival_ps, PS_PER_S)
            sizes = [row.prompt_tokens, row.output_tokens]
            yield one_line([name, request_type, application, at, 1, *sizes])


def _rows(text: Text, places: list[int]) -> Iterator[TraceRow]:
    name, request_type, application, time, batch, prompt, output = places
    for line, fields in numbered_rows(text):
        if whole_number(fields[batch], text.name, line, COLUMNS[4], 0) != 1:
            raise row_error(text.name, line, "a batch of requests", fields[batch], "batch_size 1")
        yield TraceRow(
            line,
            scaled_time(fields[time], PS_PER_S, text.name, line, COLUMNS[3]),
            whole_number(fields[prompt], text.name, line, COLUMNS[5], 0),
            whole_number(fields[output], text.name, line, COLUMNS[6], 0),
            id=fields[name],
            labels=(fields[request_type], fields[application]),
        )
