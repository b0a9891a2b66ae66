"""Vidur (github.com/microsoft/vidur): arrival in seconds, prefill and decode tokens.

Its files of lengths alone have no arrivals; `[workload.arrivals]` then supplies them.
"""

from collections.abc import Iterator

from kvsim.plumbing.reading.csv_rows import has_columns, header_of
from kvsim.plumbing.reading.files import Text
from kvsim.plumbing.units import PS_PER_S
from kvsim.workload.traces.format import TraceFormat, UncheckedRows
from kvsim.workload.traces.line import csv_lines
from kvsim.workload.traces.record import Trace, TraceRow
from kvsim.workload.traces.units import decimal_text

TIME = "arrived_at"
LENGTHS = ("num_prefill_tokens", "num_decode_tokens")


class Vidur(TraceFormat):
    """With or without arrivals; further columns are passed over."""

    needs = frozenset()
    example = ",".join((TIME, *LENGTHS))

    @classmethod
    def sniff(cls, lines: list[str]) -> bool:
        """By its header."""
        return has_columns(lines[0], LENGTHS)

    def read(self, text: Text) -> UncheckedRows:
        """Lengths, and arrivals if the header names them."""
        return UncheckedRows(_rows(text))

    def write(self, trace: Trace) -> Iterator[str]:
        """A trace without times becomes a file of lengths."""
        yield ",".join((TIME, *LENGTHS) if trace.timed else LENGTHS)
        for row in trace.rows:
            lengths = f"{row.prompt_tokens},{row.output_tokens}"
            if row.arrival_ps is None:
                yield lengths
            else:
                yield f"{decimal_text(row.arrival_ps, PS_PER_S)},{lengths}"


def _rows(text: Text) -> Iterator[TraceRow]:
    timed = TIME in header_of(text.lines[0])
    for line in csv_lines(text, LENGTHS, (TIME,)):
        arrival = line.time(TIME, PS_PER_S) if timed else None
        yield TraceRow(line.number, arrival, line.tokens(LENGTHS[0]), line.tokens(LENGTHS[1]))
