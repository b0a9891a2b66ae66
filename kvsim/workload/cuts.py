"""Cut and rescale a trace; every function also returns a note on the number of rows changed."""

from decimal import Decimal
from fractions import Fraction

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ps_from_seconds, seconds_from_ps
from kvsim.workload.lengths.distribution import clipped_lengths
from kvsim.workload.traces.record import Trace, TraceRow


def window(trace: Trace, start_s: float | None, end_s: float | None) -> tuple[list[TraceRow], str]:
    """Rows that arrived in [start_s, end_s) of the trace, and a note.

    Time counts from the trace's first row. A row that follows another row is included if that row
    is.
    """
    if not trace.timed:
        raise InputError("a file of lengths alone has no window", where=trace.name)
    zero = start_of(trace)
    start = 0 if start_s is None else ps_from_seconds(Decimal(repr(start_s)))
    end = None if end_s is None else ps_from_seconds(Decimal(repr(end_s)))
    if end is not None and end <= start:
        raise InputError(
            "the window is empty", where="end_s", value=end_s, limit=f"above {start_s}"
        )
    kept: list[TraceRow] = []
    names: set[str] = set()
    for row in trace.rows:
        if row.arrival_ps is None:
            inside = row.follows in names
        else:
            at = row.arrival_ps - zero
            inside = at >= start and (end is None or at < end)
        if inside:
            kept.append(row)
            if row.id is not None:
                names.add(row.id)
    to = "its end" if end_s is None else f"{end_s:g} s"
    left_out = len(trace.rows) - len(kept)
    note = f"window {start_s or 0:g} s to {to}: left out {left_out:,} of {len(trace.rows):,} rows"
    if not kept:
        raise InputError("no row is in the window", where=trace.name, value=note)
    return kept, note


def first(rows: list[TraceRow], limit: int) -> tuple[list[TraceRow], str]:
    """The first `limit` rows, and a note."""
    left_out = max(len(rows) - limit, 0)
    return rows[:limit], f"first {limit:,} rows: left out {left_out:,} of {len(rows):,}"


def rate_of(rows: list[TraceRow]) -> float:
    """Mean requests per second between the first and the last row; InputError if no time passes."""
    times = [row.arrival_ps for row in rows if row.arrival_ps is not None]
    span = times[-1] - times[0] if times else 0
    if not span:
        raise InputError("the rows span no time, so they have no rate", where="rate_per_s")
    return len(times) / seconds_from_ps(span)


def speed_up(rows: list[TraceRow], factor: float) -> tuple[list[TraceRow], str]:
    """Rows with arrivals `factor` times as fast, computed exactly (delays of followers do not
    change), and a note.
    """
    by = Fraction(Decimal(repr(factor)))
    fast = [
        row
        if row.arrival_ps is None
        else row._replace(arrival_ps=round(Fraction(row.arrival_ps) / by))
        for row in rows
    ]
    touched = sum(row.arrival_ps is not None for row in rows)
    return fast, f"rate times {factor:g}: {touched:,} of {len(rows):,} arrival times rescaled"


def clip(rows: list[TraceRow], limit: int) -> tuple[list[TraceRow], str | None]:
    """Cut rows to at most `limit` tokens of prompt + output, and a note if a row was longer. The
    prompt loses its end but leaves room for one output token; the output gets the rest.
    """
    clipped = [clipped_row(row, limit) for row in rows]
    touched = sum(row is not old for row, old in zip(clipped, rows, strict=True))
    note = f"clipped {touched:,} of {len(rows):,} requests to {limit:,} tokens"
    return clipped, note if touched else None


def clipped_row(row: TraceRow, limit: int) -> TraceRow:
    """The row cut to `limit` tokens of prompt + output; the row itself if it fits."""
    prompt, output = clipped_lengths(row.prompt_tokens, row.output_tokens, limit)
    if (prompt, output) == (row.prompt_tokens, row.output_tokens):
        return row
    return row._replace(prompt_tokens=prompt, output_tokens=output)


def drop_longer(rows: list[TraceRow], limit: int) -> tuple[list[TraceRow], str]:
    """Rows with prompt + output of at most `limit` tokens, without longer rows and rows that follow
    these; and a note.
    """
    kept: list[TraceRow] = []
    gone: set[str | None] = set()
    for row in rows:
        if row.prompt_tokens + row.output_tokens > limit or (row.follows and row.follows in gone):
            gone.add(row.id)
        else:
            kept.append(row)
    note = f"dropped {len(rows) - len(kept):,} of {len(rows):,} requests over {limit:,} tokens"
    if not kept:
        raise InputError("no request is short enough", where="drop_over", value=note)
    return kept, note


def start_of(trace: Trace) -> int:
    """Time of the first row on the trace's clock; 0 for a trace without times."""
    return trace.rows[0].arrival_ps or 0
