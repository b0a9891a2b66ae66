"""Vidur (github.com/microsoft/vidur): arrival in seconds, prefill and decode tokens.

Its files of lengths alone have no arrivals; `[workload.arrivals]` then supplies them.
"""

from collections.abc import Iterator

from kvsim.plumbing.units import PS_PER_S
from kvsim.workload.traces.format import CsvFormat
from kvsim.workload.traces.line import Line
from kvsim.workload.traces.record import Trace, TraceRow
from kvsim.workload.traces.units import decimal_text

TIME = "arrived_at"
LENGTHS = ("num_prefill_tokens", "num_decode_tokens")


class Vidur(CsvFormat):
    """Vidur's CSV, with or without arrivals; further columns are ignored."""

    columns, optional = LENGTHS, (TIME,)
    needs = frozenset()
    example = ",".join((TIME, *LENGTHS))

    def row(self, line: Line) -> TraceRow:
        """The request of a line; it has an arrival if the header names that column."""
        arrival = line.time(TIME, PS_PER_S) if TIME in line.values else None
        return TraceRow(line.number, arrival, line.tokens(LENGTHS[0]), line.tokens(LENGTHS[1]))

    def write(self, trace: Trace) -> Iterator[str]:
        """One line for each row; a trace without times becomes a file of lengths only."""
        yield ",".join((TIME, *LENGTHS) if trace.timed else LENGTHS)
        for row in trace.rows:
            lengths = f"{row.prompt_tokens},{row.output_tokens}"
            if row.arrival_ps is None:
                yield lengths
            else:
                yield f"{decimal_text(row.arrival_ps, PS_PER_S)},{lengths}"
