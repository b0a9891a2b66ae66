"""Dynamo's request traces (DYN_REQUEST_TRACE=1): JSON lines in order of completion, gzip or plain.

The writer starts a new file from time to time, so a folder is read as one trace.
"""

from pathlib import Path
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import read_bytes
from kvsim.plumbing.units import ceil_div
from kvsim.readers.description import Description, Requests, ServerSettings, SourceRequest
from kvsim.readers.parsing.block_ids import HashedBlocks
from kvsim.readers.parsing.fields import NS_PER_MS, Fields
from kvsim.readers.parsing.json_lines import numbered
from kvsim.readers.parsing.ledger import SourceLedger
from kvsim.readers.parsing.reports import left_out
from kvsim.readers.reader import (
    CLIENT,
    MEASURED,
    MOST_BYTES,
    SERVER,
    STREAM,
    Sniffed,
    Source,
    first_record,
)

_SCHEMAS = ("dynamo.request.trace.", "dynamo.agent.trace.")


class DynamoTrace(Source):
    """A file of request records; each may be wrapped in a log event."""

    rank = CLIENT
    what = "a Dynamo request trace"
    gives = SERVER | STREAM | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the file by the schema name in its records."""
        if source.is_folder:
            return bool(_files(source.path))
        return _is_record(source.first_record())

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Requests with the hashes of their blocks, in order of arrival."""
        rows: list[SourceRequest] = []
        models: set[str] = set()
        blocks = HashedBlocks()
        cut = 0
        paths = _files(source.path) if source.is_folder else [source.path]
        records = [
            _fields(line, source.ledger)
            for path in paths
            for line in numbered(read_bytes(path, MOST_BYTES), path.name)
        ]
        for record in sorted(records, key=_received_ms):
            if record.get("event_type", "request_end") != "request_end":
                continue
            model = record.table("request").text("model")
            models |= {model} if model else set()
            row = _request(record, blocks)
            if row is None:
                cut += 1
            else:
                rows.append(row)
        notes = left_out(cut, "without lengths are")
        size = blocks.tokens(source.name)
        if len(models) > 1:
            notes.append(f"{len(models)} models were served; all requests are kept")
        return Description(
            ServerSettings.parse({"served_model_name": min(models, default=None)}, source.name),
            Requests.in_order(rows, "unix", size),
            notes=tuple(notes),
        )


def _is_record(line: dict[str, Any]) -> bool:
    return str(_record(line).get("schema")).startswith(_SCHEMAS)


def _files(folder: Path) -> list[Path]:
    """The traces in a folder."""
    return [path for path in sorted(folder.glob("*.jsonl*")) if _is_record(first_record(path))]


def _record(line: dict[str, Any]) -> dict[str, Any]:
    event = line.get("event")
    return event if "schema" not in line and isinstance(event, dict) else line


def _fields(line: Fields, ledger: SourceLedger | None) -> Fields:
    """The record in a line, wrapped or not; the ledger lists its keys without the
    wrapper's path.
    """
    record = _record(line.items)
    if record is line.items:
        return Fields(record, line.where, ledger)
    outer = Fields(line.items, line.where, ledger, "line")
    for key in ("event", "timestamp"):
        outer.get(key)
    return Fields(record, line.where, ledger)


def _received_ms(record: Fields) -> float:
    return record.table("request").number("request_received_ms") or 0.0


def _request(record: Fields, blocks: HashedBlocks) -> SourceRequest | None:
    request, where = record.table("request"), record.where
    replay = request.table("replay")
    known = "input_tokens" in request.items
    prompt = request.tokens("input_tokens") if known else replay.tokens("input_length")
    output = request.tokens("output_tokens")
    if not prompt or not output:
        return None
    hash_ids = None
    if replay.get("input_sequence_hashes") is not None:
        size = replay.tokens("trace_block_size")
        if not size:
            raise InputError("hashes of blocks without their size", where=where)
        hashes = replay.rows("input_sequence_hashes")
        hash_ids = blocks.ids(hashes, size, where)[: ceil_div(prompt, size)]
    start = request.number("request_received_ms")
    start_ns = None if start is None else round(start * NS_PER_MS)
    return SourceRequest(
        request.text("x_request_id", "request_id") or where,
        start_ns,
        prompt,
        output,
        request.after(start_ns, "ttft_ms"),
        request.after(start_ns, "total_time_ms"),
        hash_ids,
        record.table("agent_context").text("session_id"),
        request.tokens("cached_tokens"),
    )
