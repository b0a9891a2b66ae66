"""Vidur (github.com/microsoft/vidur): arrival in seconds, prefill and decode tokens.

Its files of lengths alone have no arrivals; `[workload.arrivals]` then supplies them.
"""

from collections.abc import Iterator

from kvsim.plumbing.reading.csv_rows import columns, has_columns, header_of, numbered_rows
from kvsim.plumbing.reading.files import Text
from kvsim.plumbing.units import PS_PER_S
from kvsim.workload.text import scaled_time, whole_number
from kvsim.workload.traces.format import TraceFormat, UncheckedRows
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
        return UncheckedRows(_rows(text, columns(text, LENGTHS)))

    def write(self, trace: Trace) -> Iterator[str]:
        """A trace without times becomes a file of lengths."""
        yield ",".join((TIME, *LENGTHS) if trace.timed else LENGTHS)
        for row in trace.rows:
            lengths = f"{row.prompt_tokens},{row.output_tokens}"
            if row.arrival_ps is None:
                yield lengths
            else:
                yield f"{decimal_text(row.arrival_ps, PS_PER_S)},{lengths}"


def _rows(text: Text, places: list[int]) -> Iterator[TraceRow]:
    prompt, output = places
    header = header_of(text.lines[0])
    time = header.index(TIME) if TIME in header else None
    for line, fields in numbered_rows(text):
        arrival = None
        if time is not None:
            arrival = scaled_time(fields[time], PS_PER_S, text.name, line, TIME)
        yield TraceRow(
            line,
            arrival,
            whole_number(fields[prompt], text.name, line, LENGTHS[0], 0),
            whole_number(fields[output], text.name, line, LENGTHS[1], 0),
        )
