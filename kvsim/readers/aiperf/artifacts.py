"""AIPerf's artifact folder, or its profile_export.jsonl alone.

    profile_export.jsonl         a record a request
    profile_export_aiperf.json   the summary, with what was asked of AIPerf
    server_metrics_export.jsonl  the server's metrics, some three times a second
    server_metrics_export.json   the same, summed up

What else lies there (inputs.json, raw exports) holds prompts, and is not opened.
"""

from pathlib import Path
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import read_bytes
from kvsim.plumbing.reading.json_text import read_object
from kvsim.readers.aiperf.server_metrics import (
    curve_of,
    curve_of_export,
    settings_of_export,
    settings_of_series,
)
from kvsim.readers.aiperf.summary import asked, figures, load_of
from kvsim.readers.description import (
    ClientLoad,
    Description,
    GaugeSeries,
    Requests,
    Settings,
    SourceRequest,
)
from kvsim.readers.parsing import fields
from kvsim.readers.parsing.json_lines import numbered
from kvsim.readers.reader import CLIENT, MEASURED, MOST_BYTES, SERVER, STREAM, Sniffed, Source

RECORDS, SUMMARY = "profile_export.jsonl", "profile_export_aiperf.json"
SERIES, EXPORT = "server_metrics_export.jsonl", "server_metrics_export.json"
NS_PER_MS = 10**6


class AIPerfArtifacts(Source):
    """A folder or one of its files."""

    rank = CLIENT
    what = "an AIPerf folder, or a file of it"
    gives = SERVER | STREAM | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """By the names of its files, or by the keys of one."""
        if source.is_folder:
            return any((source.path / name).is_file() for name in (RECORDS, SUMMARY))
        first = source.first_record()
        if isinstance(first.get("metadata"), dict) and "request_start_ns" in first["metadata"]:
            return True
        return source.has_keys("aiperf_version", "input_config") or _is_series(first)

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """What the files hold that are there."""
        if source.is_folder:
            folder = source.path
            present = {name: folder / name for name in (RECORDS, SUMMARY, SERIES, EXPORT)}
            present = {name: path for name, path in present.items() if path.is_file()}
        elif source.has_keys("aiperf_version", "input_config"):
            name = SUMMARY if "request_latency" in source.object() else EXPORT
            present = {name: source.path}
        else:
            present = {SERIES if _is_series(source.first_record()) else RECORDS: source.path}
        return _described(present)


def _is_series(record: dict[str, Any]) -> bool:
    return {"endpoint_url", "timestamp_ns", "metrics"} <= record.keys()


def _described(present: dict[str, Path]) -> Description:
    notes: list[str] = []
    settings, measured, found = Settings(), dict[str, float](), dict[str, Any]()
    requests: Requests | None = None
    curve: GaugeSeries | None = None
    load: ClientLoad | None = None
    if RECORDS in present:
        requests = _requests(present[RECORDS], notes)
    if SUMMARY in present:
        summary = read_object(present[SUMMARY])
        found |= asked(summary, SUMMARY)
        measured = figures(summary, SUMMARY)
        load = load_of(summary, SUMMARY)
    if EXPORT in present:
        export = read_object(present[EXPORT])
        found |= settings_of_export(export, EXPORT)
        curve = curve_of_export(export, EXPORT, notes) if SERIES not in present else None
    if SERIES in present:
        rows = list(numbered(read_bytes(present[SERIES], MOST_BYTES), SERIES))
        found |= settings_of_series(rows)
        curve = curve_of(rows, notes)
    settings = Settings.parse(found, str(next(iter(present.values())).parent))
    return Description(settings, requests, curve, load, measured, tuple(notes))


def _requests(path: Path, notes: list[str]) -> Requests | None:
    """The requests of the profiling phase that were answered, as they were sent."""
    rows: list[SourceRequest] = []
    warmups, failed = 0, 0
    for where, record in numbered(read_bytes(path, MOST_BYTES), path.name):
        metadata = fields.table(record.get("metadata"), f"{where}: metadata")
        if metadata.get("benchmark_phase", "profiling") != "profiling":
            warmups += 1
        elif record.get("error") or metadata.get("was_cancelled"):
            failed += 1
        else:
            rows.append(_request(metadata, record, where))
    if failed:
        notes.append(f"{failed:,} requests failed or were cancelled and are left out")
    if warmups:
        notes.append(f"{warmups:,} requests of the warm-up are left out")
    rows.sort(key=lambda row: row.arrival_ns or 0)
    return Requests(tuple(rows), "unix") if rows else None


def _request(metadata: dict[str, Any], record: dict[str, Any], where: str) -> SourceRequest:
    metrics = fields.table(record.get("metrics"), f"{where}: metrics")

    def metric(name: str) -> float | None:
        entry = fields.table(metrics.get(name), f"{where}: {name}")
        value = fields.number(entry, "value", f"{where}: {name}")
        scale = {"s": 1000.0, "us": 1e-3, "ns": 1e-6}.get(str(entry.get("unit")), 1.0)
        return None if value is None else value * scale

    start = metadata.get("request_start_ns")
    if type(start) is not int:
        raise InputError("not a time", where=f"{where}: request_start_ns", value=start)
    ttft, latency = metric("time_to_first_token"), metric("request_latency")
    prompt = metric("input_sequence_length")
    output = metric("output_sequence_length")
    session = fields.text(metadata.get("x_correlation_id")) or fields.text(
        metadata.get("conversation_id")
    )
    turn = metadata.get("turn_index")
    name = fields.text(metadata.get("x_request_id")) or where
    return SourceRequest(
        name,
        start,
        fields.tokens(prompt, f"{where}: input_sequence_length"),
        fields.tokens(output if output is not None else metric("output_token_count"), where),
        None if ttft is None else start + round(ttft * NS_PER_MS),
        None if latency is None else start + round(latency * NS_PER_MS),
        session=session if isinstance(turn, int) else None,
    )
