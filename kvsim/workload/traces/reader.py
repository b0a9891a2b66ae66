"""Read a trace: detect its format, unless it is named, and run the checks common to all formats."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import Text, read_text, row_error
from kvsim.plumbing.units import PS_PER_S, seconds_from_ps
from kvsim.workload.text import MOST_SECONDS
from kvsim.workload.traces import TRACE_FORMATS
from kvsim.workload.traces.format import HashedFormat, TraceFormat
from kvsim.workload.traces.record import Trace, TraceRow


def read_trace(
    path: Path,
    *,
    format: str | None = None,
    hash_block_tokens: int | None = None,
    drop_failed: bool = False,
    sort: bool = False,
    prompts_alone: bool = False,
) -> Trace:
    """The checked rows of a file.

    format: a name in TRACE_FORMATS; None: detected from the content. hash_block_tokens: the trace's
    own block size, if not the format's usual one. drop_failed: leave out rows without prompt or
    output; sort: put rows in order of time; prompts_alone: keep rows without output. Otherwise such
    rows are an InputError, which names the line; so is a file that is empty or not UTF-8.
    """
    text = read_text(path)
    name, reader = _reader(text, format, hash_block_tokens)
    found = reader.read(text)
    notes: list[str] = []
    rows = _answered(found.rows, text.name, drop_failed, notes, 0 if prompts_alone else 1)
    if not rows:
        raise InputError("the file holds no requests", where=text.name)
    _all_or_none_timed(rows, text.name)
    rows = _in_order(rows, text.name, sort, notes)
    origin_ps = found.origin_ps
    early_ps = min((row.arrival_ps for row in rows if row.arrival_ps is not None), default=0)
    if early_ps < 0 and origin_ps is not None:  # a wall clock, its first row not the earliest
        rows = [
            row if row.arrival_ps is None else row._replace(arrival_ps=row.arrival_ps - early_ps)
            for row in rows
        ]
        origin_ps += early_ps
    _within_times(rows, text.name)
    block = reader.hash_block_tokens if isinstance(reader, HashedFormat) else None
    hashed = block is not None and any(row.hash_ids is not None for row in rows)
    return Trace(
        name=text.name,
        format=name,
        rows=rows,
        hash_block_tokens=block if hashed else None,
        origin_ps=origin_ps,
        notes=tuple(notes),
    )


def _within_times(rows: Sequence[TraceRow], name: str) -> None:
    """Raise InputError for a time too far from the first row's."""
    for row in rows:
        if row.arrival_ps is not None and row.arrival_ps > MOST_SECONDS * PS_PER_S:
            value = f"{row.arrival_ps // PS_PER_S:,} s after the first row"
            limit = f"{MOST_SECONDS:,} s"
            raise row_error(name, row.line, "the time is out of range", value, limit)


def detect(text: Text) -> str:
    """The name of the first format that recognises the file, or else its first line, so that an
    error can name a faulty line. InputError lists all formats.
    """
    for lines in (text.lines, text.lines[:1]):
        for name in TRACE_FORMATS:
            if TRACE_FORMATS.get(name).sniff(lines):
                return name
    raise row_error(
        text.name,
        1,
        "not a trace format kvsim knows",
        repr(text.lines[0][:120]),
        remedy=f"name one to see what is missing: {', '.join(TRACE_FORMATS)}",
    )


def _reader(
    text: Text, format: str | None, hash_block_tokens: int | None
) -> tuple[str, TraceFormat]:
    name = detect(text) if format is None else format
    options = {} if hash_block_tokens is None else {"hash_block_tokens": hash_block_tokens}
    cls = TRACE_FORMATS.get(name, "format")
    if options and not issubclass(cls, HashedFormat):
        raise InputError(f"the {name} format has no hash ids", where="hash_block_tokens")
    return name, cls.parse(options, "trace")


def _answered(
    rows: Iterable[TraceRow], name: str, drop_failed: bool, notes: list[str], least: int
) -> list[TraceRow]:
    """The rows with a prompt and at least `least` tokens of output. A row that followed a dropped
    row follows its predecessor instead.
    """
    kept: list[TraceRow] = []
    dropped: dict[str, TraceRow] = {}
    failed = 0
    for row in rows:
        if row.follows in dropped:
            gone = dropped[row.follows]
            delay = row.delay_ps + gone.delay_ps if gone.follows else 0
            row = row._replace(follows=gone.follows, arrival_ps=gone.arrival_ps, delay_ps=delay)
        if row.prompt_tokens and row.output_tokens >= least:
            kept.append(row)
            continue
        if not drop_failed:
            what = "a request without output" if row.prompt_tokens else "a request without prompt"
            raise row_error(
                name,
                row.line,
                what,
                0,
                "1 token",
                "set drop_failed to leave such rows out"
                + (", or prompts_alone to compute the prompts" if row.prompt_tokens else ""),
            )
        failed += 1
        if row.id is not None:
            dropped[row.id] = row
    if drop_failed:
        notes.append(f"dropped {failed:,} of {len(kept) + failed:,} rows without prompt or output")
    return kept


def _all_or_none_timed(rows: list[TraceRow], name: str) -> None:
    timed = rows[0].arrival_ps is not None
    for row in rows:
        if row.follows is None and (row.arrival_ps is not None) != timed:
            what = (
                "a row without a time among rows with one"
                if timed
                else ("a row with a time among rows without one")
            )
            raise row_error(name, row.line, what)


def _in_order(rows: list[TraceRow], name: str, sort: bool, notes: list[str]) -> list[TraceRow]:
    """The rows sorted by time. A row without a time of its own sorts by the time of the row that it
    follows.
    """
    newest, moved = 0, 0
    for row in rows:
        if row.arrival_ps is None:
            continue
        if row.arrival_ps < newest:
            if not sort:
                raise row_error(
                    name,
                    row.line,
                    "time goes back",
                    f"{seconds_from_ps(row.arrival_ps - newest)} s against an earlier row",
                    remedy="set sort to put the rows in order",
                )
            moved += 1
        newest = max(newest, row.arrival_ps)
    if sort:
        notes.append(f"sorted: {moved:,} of {len(rows):,} rows came after a later one")
    if not moved:
        return rows
    times: dict[str, int] = {}
    keys = []
    for row in rows:
        at = times.get(row.follows or "", 0) if row.arrival_ps is None else row.arrival_ps
        if row.id is not None:
            times[row.id] = at
        keys.append(at)
    order = sorted(range(len(rows)), key=keys.__getitem__)
    return [rows[index] for index in order]
