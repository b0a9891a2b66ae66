"""OpenTelemetry spans of a vLLM server (`llm_request`), as written by a collector's file exporter.

The format is OTLP as JSON: one document, or one batch per line.
"""

import re
from collections.abc import Iterator
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.readers.description import Description, Requests, ServerSettings, SourceRequest
from kvsim.readers.parsing.fields import Fields, tokens, whole
from kvsim.readers.parsing.json_lines import values
from kvsim.readers.reader import ENGINE_ITSELF, MEASURED, SERVER, STREAM, Sniffed, Source

_PROMPT = ("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens")
_OUTPUT = ("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens")
_TTFT, _E2E = "gen_ai.latency.time_to_first_token", "gen_ai.latency.e2e"


_HARMLESS = re.compile(
    r"resource$|\.(?:scope|schemaUrl|resource)$|^attributes\.(?!.*(?:cache|batch|tokens|preempt))|"
    r"^attributes\.gen_ai\.(?:request\.|prompt|completion|operation|system|response)"
)


class OtelSpans(Source):
    """Times measured by the server: arrival at the server, first token, end."""

    rank = ENGINE_ITSELF
    what = "OpenTelemetry spans"
    gives = SERVER | STREAM | MEASURED
    harmless = _HARMLESS

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the file by OTLP's outermost key."""
        return source.has_keys("resourceSpans") or "resourceSpans" in source.first_record()

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """One request for each span that has token counts."""
        rows: list[SourceRequest] = []
        model: str | None = None
        unfinished = 0
        for span in _spans(source):
            attributes = Fields(_attributes(span), span.where, source.ledger, "attributes")
            row = _request(span, attributes)
            if row is None:
                unfinished += 1
                continue
            rows.append(row)
            model = attributes.text("gen_ai.response.model") or model
        if not rows:
            raise InputError("no span of a request with its tokens", where=source.name)
        notes = (f"{unfinished:,} spans of other things are left out",) if unfinished else ()
        settings = ServerSettings.parse({"served_model_name": model}, source.name)
        return Description(settings, Requests.in_order(rows, "unix"), notes=notes)


def _spans(source: Sniffed) -> Iterator[Fields]:
    """All spans, of any service and library."""
    batches: Iterator[tuple[str, Any]] = (
        values(source.data, source.name)
        if source.document is None
        else iter([(source.name, source.document)])
    )
    for where, batch in batches:
        for resource in Fields(batch, where, source.ledger, "batch").tables("resourceSpans"):
            newer = "scopeSpans" in resource.items
            for scope in resource.tables("scopeSpans" if newer else "instrumentationLibrarySpans"):
                yield from (Fields(span, where) for span in scope.rows("spans"))


def _attributes(span: Fields) -> dict[str, Any]:
    return {
        str(entry.get("key")): next(iter(entry.table("value").items.values()), None)
        for entry in span.tables("attributes")
    }


def _request(span: Fields, attributes: Fields) -> SourceRequest | None:
    prompt, output = (
        next((attributes.get(name) for name in names if name in attributes.items), None)
        for names in (_PROMPT, _OUTPUT)
    )
    # OTLP's JSON writes numbers of 64 bits as text.
    start, end = span.whole("startTimeUnixNano"), span.whole("endTimeUnixNano")
    if prompt is None or output is None or start is None:
        return None
    ttft, e2e = attributes.nanoseconds(_TTFT), attributes.nanoseconds(_E2E)
    prompt_tokens, output_tokens = (
        tokens(whole(each, span.where), span.where) for each in (prompt, output)
    )
    if not prompt_tokens or not output_tokens:
        return None
    return SourceRequest(
        str(attributes.get("gen_ai.request.id") or span.get("spanId") or span.where),
        start,
        prompt_tokens,
        output_tokens,
        None if ttft is None else start + ttft,
        end if e2e is None else start + e2e,
    )
