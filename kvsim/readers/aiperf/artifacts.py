"""AIPerf's artifact folder, or its profile_export.jsonl alone.

    profile_export.jsonl         a record a request
    profile_export_aiperf.json   the summary, with what was asked of AIPerf
    server_metrics_export.jsonl  the server's metrics, some three times a second
    server_metrics_export.json   the same, summed up

Other files of the folder (inputs.json, raw exports) hold prompts, and are not opened.
"""

from pathlib import Path
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import read_bytes
from kvsim.plumbing.reading.json_text import read_object
from kvsim.readers.aiperf import server_metrics, summary
from kvsim.readers.description import (
    ClientLoad,
    Description,
    GaugeSeries,
    Requests,
    ServerSettings,
    SourceRequest,
)
from kvsim.readers.parsing.fields import NS_PER_MS, Fields, tokens
from kvsim.readers.parsing.harmless_keys import REPORTS
from kvsim.readers.parsing.json_lines import numbered
from kvsim.readers.parsing.ledger import SourceLedger
from kvsim.readers.parsing.reports import left_out
from kvsim.readers.reader import CLIENT, MEASURED, MOST_BYTES, SERVER, STREAM, Sniffed, Source

RECORDS, SUMMARY = "profile_export.jsonl", "profile_export_aiperf.json"
SERIES, EXPORT = "server_metrics_export.jsonl", "server_metrics_export.json"
_MS = {"s": 1000.0, "us": 1e-3, "ns": 1e-6}  # a unit in milliseconds


class AIPerfArtifacts(Source):
    """AIPerf's artifact folder, or one of its files."""

    rank = CLIENT
    what = "an AIPerf folder, or a file of it"
    gives = SERVER | STREAM | MEASURED
    harmless = REPORTS

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise a folder by the names of its files, or a file by its keys."""
        if source.is_folder:
            return any((source.path / name).is_file() for name in (RECORDS, SUMMARY))
        first = source.first_record()
        if isinstance(first.get("metadata"), dict) and "request_start_ns" in first["metadata"]:
            return True
        return source.has_keys("aiperf_version", "input_config") or _is_series(first)

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read those of the folder's files that exist."""
        if source.is_folder:
            folder = source.path
            present = {name: folder / name for name in (RECORDS, SUMMARY, SERIES, EXPORT)}
            present = {name: path for name, path in present.items() if path.is_file()}
        elif source.has_keys("aiperf_version", "input_config"):
            name = SUMMARY if "request_latency" in source.object() else EXPORT
            present = {name: source.path}
        else:
            present = {SERIES if _is_series(source.first_record()) else RECORDS: source.path}
        return _described(present, source.ledger)


def _is_series(record: dict[str, Any]) -> bool:
    return {"endpoint_url", "timestamp_ns", "metrics"} <= record.keys()


def _described(present: dict[str, Path], ledger: SourceLedger | None) -> Description:
    notes: list[str] = []
    measured, found = dict[str, float](), dict[str, Any]()
    requests: Requests | None = None
    gauges: GaugeSeries | None = None
    load: ClientLoad | None = None
    if RECORDS in present:
        requests = _requests(present[RECORDS], ledger, notes)
    if SUMMARY in present:
        report = Fields(read_object(present[SUMMARY]), SUMMARY, ledger)
        found |= summary.asked(report)
        measured, load = summary.figures(report), summary.load_of(report)
    if EXPORT in present:
        export = Fields(read_object(present[EXPORT]), EXPORT, ledger)
        found |= server_metrics.settings_of_export(export)
        if SERIES not in present:
            gauges = server_metrics.gauges_of_export(export, notes)
    if SERIES in present:
        rows = list(numbered(read_bytes(present[SERIES], MOST_BYTES), SERIES, ledger))
        found |= server_metrics.settings_of_series(rows)
        gauges = server_metrics.gauges_of_series(rows, notes)
    settings = ServerSettings.parse(found, str(next(iter(present.values())).parent))
    return Description(settings, requests, gauges, load, measured, tuple(notes))


def _requests(path: Path, ledger: SourceLedger | None, notes: list[str]) -> Requests | None:
    """The answered requests of the profiling phase, in the order in which they were sent."""
    rows: list[SourceRequest] = []
    warmups, failed = 0, 0
    for record in numbered(read_bytes(path, MOST_BYTES), path.name, ledger, "record"):
        metadata = record.table("metadata")
        if metadata.get("benchmark_phase", "profiling") != "profiling":
            warmups += 1
        elif record.get("error") or metadata.get("was_cancelled"):
            failed += 1
        else:
            rows.append(_request(record, metadata))
    notes += left_out(failed, "failed or were cancelled and are")
    notes += left_out(warmups, "of the warm-up are")
    return Requests.in_order(rows, "unix")


def _request(record: Fields, metadata: Fields) -> SourceRequest:
    metrics = record.table("metrics")

    def metric(name: str) -> float | None:
        entry = metrics.table(name)
        value = entry.number("value")
        return None if value is None else value * _MS.get(str(entry.get("unit")), 1.0)

    def length(*names: str) -> int | None:
        name = next((name for name in names if metric(name) is not None), names[0])
        return tokens(metric(name), metrics.place(name))

    start = metadata.get("request_start_ns")
    if type(start) is not int:
        raise InputError("not a time", where=metadata.place("request_start_ns"), value=start)
    first, last = (
        None if (after := metric(name)) is None else start + round(after * NS_PER_MS)
        for name in ("time_to_first_token", "request_latency")
    )
    in_session = isinstance(metadata.get("turn_index"), int)
    return SourceRequest(
        metadata.text("x_request_id") or record.where,
        start,
        length("input_sequence_length"),
        length("output_sequence_length", "output_token_count"),
        first,
        last,
        session=metadata.text("x_correlation_id", "conversation_id") if in_session else None,
    )
