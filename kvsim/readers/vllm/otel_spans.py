"""OpenTelemetry spans of a vLLM server (`llm_request`), as a collector's file exporter writes them:
OTLP as JSON, a document or a line a batch.
"""

from collections.abc import Iterator
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.readers.description import Description, Requests, Settings, SourceRequest
from kvsim.readers.parsing import fields
from kvsim.readers.parsing.json_lines import values
from kvsim.readers.reader import ENGINE_ITSELF, MEASURED, SERVER, STREAM, Sniffed, Source

_PROMPT = ("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens")
_OUTPUT = ("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens")
_TTFT, _E2E = "gen_ai.latency.time_to_first_token", "gen_ai.latency.e2e"


class OtelSpans(Source):
    """The server's own times: arrival at the server, first token, end."""

    rank = ENGINE_ITSELF
    what = "OpenTelemetry spans"
    gives = SERVER | STREAM | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """By OTLP's outermost key."""
        return source.has_keys("resourceSpans") or "resourceSpans" in source.first_record()

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """A request a span that counts tokens."""
        rows: list[SourceRequest] = []
        model: str | None = None
        unfinished = 0
        for where, span in _spans(source):
            told = _attributes(span, where)
            row = _request(span, told, where)
            if row is None:
                unfinished += 1
                continue
            rows.append(row)
            model = fields.text(told.get("gen_ai.response.model")) or model
        if not rows:
            raise InputError("no span of a request with its tokens", where=source.name)
        notes = (f"{unfinished:,} spans of other things are left out",) if unfinished else ()
        rows.sort(key=lambda row: row.arrival_ns or 0)
        settings = Settings.parse({"served_model_name": model}, source.name)
        return Description(settings, Requests(tuple(rows), "unix"), notes=notes)


def _spans(source: Sniffed) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, span), whatever the service and the library."""
    if source.document is not None:
        batches: Iterator[tuple[str, Any]] = iter([(source.name, source.document)])
    else:
        batches = values(source.data, source.name)
    for where, batch in batches:
        for resource in fields.rows(fields.table(batch, where).get("resourceSpans"), where):
            table = fields.table(resource, where)
            scopes = table.get("scopeSpans", table.get("instrumentationLibrarySpans"))
            for scope in fields.rows(scopes, where):
                for span in fields.rows(fields.table(scope, where).get("spans"), where):
                    yield where, fields.table(span, where)


def _attributes(span: dict[str, Any], where: str) -> dict[str, Any]:
    found = {}
    for entry in fields.rows(span.get("attributes"), where):
        table = fields.table(entry, where)
        value = fields.table(table.get("value"), where)
        found[str(table.get("key"))] = next(iter(value.values()), None)
    return found


def _request(span: dict[str, Any], told: dict[str, Any], where: str) -> SourceRequest | None:
    prompt, output = (
        next((told[name] for name in names if name in told), None) for names in (_PROMPT, _OUTPUT)
    )
    start, end = (
        fields.whole(span.get(key), f"{where}: {key}")  # OTLP's JSON writes 64-bit numbers as text
        for key in ("startTimeUnixNano", "endTimeUnixNano")
    )
    if prompt is None or output is None or start is None:
        return None
    ttft, e2e = (fields.nanoseconds(told.get(name), f"{where}: {name}") for name in (_TTFT, _E2E))
    prompt_tokens, output_tokens = (
        fields.tokens(fields.whole(each, where), where) for each in (prompt, output)
    )
    if not prompt_tokens or not output_tokens:
        return None
    name = told.get("gen_ai.request.id") or span.get("spanId")
    return SourceRequest(
        str(name or where),
        start,
        prompt_tokens,
        output_tokens,
        None if ttft is None else start + ttft,
        end if e2e is None else start + e2e,
    )
