"""BLIS's TraceV2: a header (YAML), a table of requests (CSV), perhaps one of chunks (itl.csv).

Give the table, the header, or the folder: the files stand beside each other under one name. The
header is read line by line, for the few plain keys that matter.
"""

import re
from pathlib import Path
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.csv_rows import columns, has_columns, numbered_rows
from kvsim.plumbing.reading.files import Text, read_bytes, read_text
from kvsim.readers.description import Description, Requests, Settings, SourceRequest
from kvsim.readers.parsing import fields
from kvsim.readers.reader import CLIENT, MEASURED, MOST_BYTES, SERVER, STREAM, Sniffed, Source

_NEEDED = ("request_id", "input_tokens", "output_tokens", "arrival_time_us", "status")
_TIMES = ("send_time_us", "first_chunk_time_us", "last_chunk_time_us")
_KEY = re.compile(r"(\s*)([\w]+):\s*(\S.*)?$")
NS_PER_US = 1000


class BlisTraceV2(Source):
    """A trace of a real server (`mode: real`) or a workload."""

    rank = CLIENT
    what = "a BLIS trace (TraceV2)"
    gives = SERVER | STREAM | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """By the table's columns, or the header's keys."""
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
        settings = _header(header) if header is not None else Settings()
        notes: list[str] = []
        return Description(settings, _requests(read_text(table), notes), notes=tuple(notes))


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


def _header(path: Path) -> Settings:
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
    return Settings.parse(found, path.name)


def _requests(text: Text, notes: list[str]) -> Requests | None:
    names = (*_NEEDED, *_TIMES)
    places = dict(zip(names, columns(text, names), strict=True))
    header = text.lines[0].split(",")
    wanted = ("server_input_tokens", "session_id")
    optional: dict[str, int] = {name: header.index(name) for name in wanted if name in header}
    rows: list[SourceRequest] = []
    failed = 0
    for line, cells in numbered_rows(text):

        def whole(name: str, cells: list[str] = cells, line: int = line) -> int:
            value = cells[places[name] if name in places else optional[name]]
            number = fields.whole(value, where := f"{text.name}, line {line}: {name}")
            if name.endswith("_tokens"):
                number = fields.tokens(number, where)
            assert number is not None
            return number

        if cells[places["status"]] not in ("ok", ""):
            failed += 1
            continue
        prompt = whole("input_tokens")
        if "server_input_tokens" in optional and cells[optional["server_input_tokens"]]:
            prompt = whole("server_input_tokens") or prompt  # as the server counted them
        sent = whole("send_time_us") if cells[places["send_time_us"]] else 0
        measured = sent > 0
        session = cells[optional["session_id"]] if "session_id" in optional else ""
        rows.append(
            SourceRequest(
                cells[places["request_id"]],
                NS_PER_US * (sent if measured else whole("arrival_time_us")),
                prompt,
                whole("output_tokens"),
                NS_PER_US * whole("first_chunk_time_us") if measured else None,
                NS_PER_US * whole("last_chunk_time_us") if measured else None,
                session=session or None,
            )
        )
    if failed:
        notes.append(f"{failed:,} requests failed and are left out")
    rows.sort(key=lambda row: row.arrival_ns or 0)
    unix = bool(rows) and (rows[0].arrival_ns or 0) > 10**17  # after 1973
    return Requests(tuple(rows), "unix" if unix else "own") if rows else None
