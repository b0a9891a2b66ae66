"""Dynamo's request traces (DYN_REQUEST_TRACE=1): JSON lines in order of end, gzip or not.

A writer begins a new file from time to time: a folder stands for all of its files.
"""

from pathlib import Path
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import read_bytes
from kvsim.readers.description import Description, Requests, Settings, SourceRequest
from kvsim.readers.parsing import fields
from kvsim.readers.parsing.block_ids import SmallIds
from kvsim.readers.parsing.json_lines import numbered
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
NS_PER_MS = 10**6


class DynamoTrace(Source):
    """A file of records, each perhaps wrapped in an event of a log."""

    rank = CLIENT
    what = "a Dynamo request trace"
    gives = SERVER | STREAM | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """By the schema its records name."""
        if source.is_folder:
            return bool(_files(source.path))
        return _is_record(source.first_record())

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Requests with the hashes of their blocks, in order of arrival."""
        rows: list[SourceRequest] = []
        sizes: set[int] = set()
        models: set[str] = set()
        ids = SmallIds()
        notes: list[str] = []
        cut = 0
        paths = _files(source.path) if source.is_folder else [source.path]
        records = [
            record for path in paths for record in numbered(read_bytes(path, MOST_BYTES), path.name)
        ]
        for where, line in sorted(records, key=_received):
            record = _record(line)
            if record.get("event_type", "request_end") != "request_end":
                continue
            table = fields.table(record.get("request"), f"{where}: request")
            model = fields.text(table.get("model"))
            models |= {model} if model else set()
            row = _request(table, record, ids, sizes, where)
            if row is None:
                cut += 1
            else:
                rows.append(row)
        if cut:
            notes.append(f"{cut:,} requests without lengths are left out")
        if len(sizes) > 1:
            raise InputError("blocks of several sizes", where=source.name, value=sorted(sizes))
        settings = {"served_model_name": sorted(models)[0]} if models else {}
        if len(models) > 1:
            notes.append(f"{len(models)} models were served; all requests are kept")
        return Description(
            Settings.parse(settings, source.name),
            Requests(tuple(rows), "unix", next(iter(sizes), None)) if rows else None,
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


def _received(line: tuple[str, dict[str, Any]]) -> float:
    request = _record(line[1]).get("request")
    table = fields.table(request, line[0])
    return fields.number(table, "request_received_ms", line[0]) or 0.0


def _request(
    table: dict[str, Any], record: dict[str, Any], ids: SmallIds, sizes: set[int], where: str
) -> SourceRequest | None:
    replay = fields.table(table.get("replay"), f"{where}: replay")
    hashes = replay.get("input_sequence_hashes")
    prompt = table.get("input_tokens", replay.get("input_length"))
    prompt_tokens = fields.tokens(prompt, f"{where}: input_tokens")
    output_tokens = fields.tokens(table.get("output_tokens"), f"{where}: output_tokens")
    if not prompt_tokens or not output_tokens:
        return None
    hash_ids = None
    if hashes is not None:
        size = fields.tokens(replay.get("trace_block_size"), f"{where}: trace_block_size")
        if not size:
            raise InputError("hashes of blocks without their size", where=where)
        sizes.add(size)
        hash_ids = ids.of(fields.rows(hashes, where), where)[: -(-prompt_tokens // size)]
    start = fields.number(table, "request_received_ms", where)
    ttft, total = (fields.number(table, key, where) for key in ("ttft_ms", "total_time_ms"))
    start_ns = None if start is None else round(start * NS_PER_MS)
    context = fields.table(record.get("agent_context"), f"{where}: agent_context")
    name = fields.text(table.get("x_request_id")) or fields.text(table.get("request_id"))

    def after(milliseconds: float | None) -> int | None:
        if start_ns is None or milliseconds is None:
            return None
        return start_ns + round(milliseconds * NS_PER_MS)

    return SourceRequest(
        name or where,
        start_ns,
        prompt_tokens,
        output_tokens,
        after(ttft),
        after(total),
        hash_ids,
        fields.text(context.get("session_id")),
        fields.tokens(table.get("cached_tokens"), f"{where}: cached_tokens"),
    )
