"""BLIS's TraceV2: a header (YAML), a table of requests (CSV), and optionally a table of chunks
(itl.csv).

The user gives the table, the header, or the folder: all files have the same name and folder. The
header is read line by line, for a few plain keys.
"""

import re
from pathlib import Path
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.csv_rows import columns, has_columns, records
from kvsim.plumbing.reading.files import Text, read_bytes, read_text
from kvsim.readers.description import Description, Requests, ServerSettings, SourceRequest
from kvsim.readers.parsing.fields import Fields, tokens
from kvsim.readers.parsing.ledger import SourceLedger
from kvsim.readers.parsing.reports import left_out
from kvsim.readers.reader import CLIENT, MEASURED, MOST_BYTES, SERVER, STREAM, Sniffed, Source

_NEEDED = ("request_id", "input_tokens", "output_tokens", "arrival_time_us", "status")
_TIMES = ("send_time_us", "first_chunk_time_us", "last_chunk_time_us")
_KEY = re.compile(r"(\s*)([\w]+):\s*(\S.*)?$")
NS_PER_US = 1000
_UNIX_NS = 10**17  # 1973


class BlisTraceV2(Source):
    """A trace of a real server (`mode: real`), or a workload."""

    rank = CLIENT
    what = "a BLIS trace (TraceV2)"
    gives = SERVER | STREAM | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the table by its columns, or the header by its keys."""
        if source.is_folder:
            return any(map(_is_table, source.path.glob("*.csv")))
        head = source.text.split("\n", 1)[0]
        return has_columns(head, (*_NEEDED, *_TIMES)) or (
            source.text.startswith("trace_version:") and "time_unit:" in source.text
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Settings from the header, requests from the table."""
        table, header = _files(source)
        settings = _header(header) if header is not None else ServerSettings()
        notes: list[str] = []
        return Description(
            settings, _requests(read_text(table), source.ledger, notes), notes=tuple(notes)
        )


def _is_table(path: Path) -> bool:
    try:
        head = read_bytes(path, MOST_BYTES)[:4096].decode("utf-8", errors="replace")
    except InputError:
        return False
    return has_columns(head.split("\n", 1)[0], (*_NEEDED, *_TIMES))


def _files(source: Sniffed) -> tuple[Path, Path | None]:
    path = source.path
    if source.is_folder:
        table = next(filter(_is_table, sorted(path.glob("*.csv"))))
    else:
        table = path.with_suffix(".csv") if path.suffix in (".yaml", ".yml") else path
    if not table.is_file():
        raise InputError("the table of requests is missing", where=str(table))
    header = table.with_suffix(".yaml")
    return table, header if header.is_file() else None


def _header(path: Path) -> ServerSettings:
    found: dict[str, Any] = {}
    table = ""
    for line in read_text(path).lines:
        match = _KEY.match(line)
        if match is None:
            continue
        indent, key, value = match.groups()
        if not indent:
            table = key
        if table == "server" and value:
            value = value.strip("\"' ")
            if key == "type" and value == "vllm":
                found["engine"] = "vllm"
            elif key == "model":
                found["model"] = value
    return ServerSettings.parse(found, path.name)


def _requests(text: Text, ledger: SourceLedger | None, notes: list[str]) -> Requests | None:
    columns(text, (*_NEEDED, *_TIMES))
    rows: list[SourceRequest] = []
    failed = 0
    for line, cells in records(text):
        if cells.get("status", "ok") == "ok":
            rows.append(_request(Fields(cells, f"{text.name}, line {line}", ledger)))
        else:
            failed += 1
    notes += left_out(failed, "failed and are")
    unix = min((row.arrival_ns or 0 for row in rows), default=0) > _UNIX_NS
    return Requests.in_order(rows, "unix" if unix else "own")


def _request(row: Fields) -> SourceRequest:
    def whole(name: str) -> int:
        value = row.whole(name)
        if value is None:
            raise InputError("not a whole number", where=row.place(name), value="")
        return value

    prompt, output = (
        tokens(whole(name), row.place(name)) for name in ("input_tokens", "output_tokens")
    )
    counted = tokens(row.whole("server_input_tokens"), row.place("server_input_tokens"))
    sent = row.whole("send_time_us") or 0
    measured = sent > 0
    return SourceRequest(
        str(row.get("request_id", "")),
        NS_PER_US * (sent if measured else whole("arrival_time_us")),
        counted or prompt,
        output,
        NS_PER_US * whole("first_chunk_time_us") if measured else None,
        NS_PER_US * whole("last_chunk_time_us") if measured else None,
        session=row.get("session_id"),
    )
