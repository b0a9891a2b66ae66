"""Any trace format that workloads read (`kvsim traces formats`), such as Mooncake's or Azure's."""

import re

from kvsim.plumbing.reading.csv_rows import header_of
from kvsim.plumbing.reading.files import read_text
from kvsim.plumbing.units import PS_PER_NS
from kvsim.readers.description import Description, Requests, SourceRequest
from kvsim.readers.reader import CLIENT, STREAM, Sniffed, Source
from kvsim.workload.traces import TRACE_FORMATS
from kvsim.workload.traces.format import CsvFormat, HashedFormat
from kvsim.workload.traces.line import LOOK_AT, first_objects, fits
from kvsim.workload.traces.reader import detect, read_trace

_WORDS = re.compile(r"[A-Za-z_][\w ]*")
# Keys that trace formats have beside those of their examples.
_COMMON = frozenset(
    (
        *("id", "timestamp", "input_length", "output_length", "hash_ids", "session_id", "delay"),
        *("chat_id", "parent_chat_id", "turn", "type", "items", "adapter", "text_input"),
        *("request_id", "priority", "Session ID", "Elapsed time"),
    )
)
USUAL_SIZES = (16, 32, 64, 128, 256, 512, 1024)


class RecordedTrace(Source):
    """Requests of a recorded trace, with their arrival times.

    If hash ids do not fit the format's usual block size, other common sizes are tried. A request
    that follows an answer after a delay has no arrival time of its own, and its delay is not
    imported.
    """

    rank = CLIENT
    what = "a trace of requests"
    gives = STREAM

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the file as one of the trace formats does."""
        lines = source.text.splitlines()
        return bool(lines) and any(TRACE_FORMATS.get(name).sniff(lines) for name in TRACE_FORMATS)

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the rows of the trace."""
        size, note = _block_size(source)
        trace = read_trace(source.path, hash_block_tokens=size, drop_failed=True, sort=True)
        followers = sum(row.follows is not None for row in trace.rows)
        notes = [*trace.notes, *([note] if note else [])]
        _look(source, trace.format)
        if followers:
            notes.append(f"{followers:,} rows follow an answer: their times are not known")
        rows = tuple(
            SourceRequest(
                row.id or f"line{row.line}",
                None if row.arrival_ps is None else row.arrival_ps // PS_PER_NS,
                row.prompt_tokens,
                row.output_tokens,
                hash_ids=row.hash_ids,
                session=row.session,
            )
            for row in trace.rows
        )
        return Description(
            requests=Requests(rows, "own", trace.hash_block_tokens), notes=tuple(notes)
        )


def _look(source: Sniffed, form: str) -> None:
    """Record in the ledger the keys or columns of the first rows, and which of these the format
    reads.
    """
    ledger, lines = source.ledger, source.text.splitlines()[:LOOK_AT]
    if ledger is None or not lines:
        return
    cls = TRACE_FORMATS.get(form)
    known = {name.strip() for name in _WORDS.findall(cls.example)} | _COMMON
    if issubclass(cls, CsvFormat):
        known |= {*cls.columns, *cls.optional}
    if lines[0].lstrip().startswith("{"):
        for record in source.records:
            ledger.there("keys", "", record if isinstance(record, dict) else ())
        for name in known:
            ledger.take("keys", "", name)
    else:
        ledger.there("columns", "", header_of(lines[0]))
        for name in known:
            ledger.take("columns", "", name)


def _block_size(source: Sniffed) -> tuple[int | None, str | None]:
    """(block size of the hash ids, note) if it differs from the format's default, else (None,
    None).
    """
    text = read_text(source.path)
    cls = TRACE_FORMATS.get(detect(text))
    if not issubclass(cls, HashedFormat):
        return None, None
    records = first_objects(text.lines)
    usual = cls.model_fields["hash_block_tokens"].default
    if fits(records, usual):
        return None, None
    fitting = [size for size in USUAL_SIZES if fits(records, size)]
    if not fitting:
        return None, None
    return fitting[0], f"hash ids are taken to be of blocks of {fitting[0]} tokens, which fit"
