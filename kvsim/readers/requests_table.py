"""A CSV table of measured requests (gzip or plain): one row per request, seconds on one clock.

Columns are found by name, and further columns are allowed. Required are a send time (send_s,
arrival_s or start_s) and lengths (prompt_tokens and output_tokens, or input_tokens). Latencies are
optional: either relative to the send time (ttft_s, e2e_s) or on the same clock (first_token_s,
last_token_s). The columns id, failed and session are optional too.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.csv_rows import header_of, records
from kvsim.plumbing.reading.files import read_text
from kvsim.readers.description import NS_PER_S, Description, Requests, SourceRequest
from kvsim.readers.parsing.fields import MOST_SECONDS
from kvsim.readers.reader import CLIENT, MEASURED, STREAM, Sniffed, Source

_SENT = ("send_s", "arrival_s", "start_s")
_PROMPT, _OUTPUT = ("prompt_tokens", "input_tokens"), ("output_tokens",)
_MORE = ("id", "failed", "session")
_AFTER, _CLOCK = ("ttft_s", "e2e_s"), ("first_token_s", "last_token_s")


class RequestsTable(Source):
    """A table written by a user's own client, or requests.csv of an observed run."""

    rank = CLIENT
    what = "a table of measured requests"
    gives = STREAM | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the table by its columns: send times, lengths and latencies."""
        names = set(header_of(source.text.split("\n", 1)[0]))
        return all(names & set(some) for some in (_SENT, _PROMPT, _OUTPUT)) and any(
            set(pair) <= names for pair in (_AFTER, _CLOCK)
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """The requests that did not fail."""
        text = read_text(source.path)
        rows: list[SourceRequest] = []
        failed = 0
        columns = header_of(text.lines[0]) if text.lines else ()
        if source.ledger is not None:
            source.ledger.there("columns", "", columns)
            for name in (*_SENT, *_PROMPT, *_OUTPUT, *_AFTER, *_CLOCK, *_MORE):
                source.ledger.take("columns", "", name)
        for line, cells in records(text):
            where = f"{text.name}, line {line}"
            if cells.get("failed", "0").lower() in ("1", "true"):
                failed += 1
            else:
                rows.append(_request(cells, where, f"r{line}"))
        rows.sort(key=lambda row: row.arrival_ns or 0)
        notes = (f"{failed:,} requests failed and are left out",) if failed else ()
        return Description(requests=Requests(tuple(rows), "run") if rows else None, notes=notes)


def _request(cells: Mapping[str, str], where: str, name: str) -> SourceRequest:
    sent = _time(cells, _first(cells, _SENT, where), where)
    origin = sent if set(_AFTER) <= cells.keys() else 0
    pair = _AFTER if origin or set(_AFTER) <= cells.keys() else _CLOCK
    first, last = (
        origin + _time(cells, column, where) if column in cells else None for column in pair
    )
    return SourceRequest(
        cells.get("id", name),
        sent,
        _count(cells, _first(cells, _PROMPT, where), where),
        _count(cells, _first(cells, _OUTPUT, where), where),
        first,
        last,
        session=cells.get("session"),
    )


def _first(cells: Mapping[str, str], names: tuple[str, ...], where: str) -> str:
    for name in names:
        if name in cells:
            return name
    raise InputError("an empty field", where=f"{where}: {names[0]}")


def _time(cells: Mapping[str, str], column: str, where: str) -> int:
    try:
        seconds = Decimal(cells[column])
        if not abs(seconds) <= Decimal(MOST_SECONDS):
            raise InvalidOperation
    except InvalidOperation:
        raise InputError(
            "not a time in seconds", where=f"{where}: {column}", value=cells[column]
        ) from None
    return round(seconds * NS_PER_S)


def _count(cells: Mapping[str, str], column: str, where: str) -> int:
    value = cells[column]
    if not value.isdecimal() or len(value) > 12:
        raise InputError("not a count of tokens", where=f"{where}: {column}", value=value)
    return int(value)
