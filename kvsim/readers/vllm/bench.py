"""`vllm bench serve --save-result`: a JSON object a run; --save-detailed keeps its requests.

A detailed result of an older version lacks start_times. Where its closed loop was always full, they
follow from the latencies: each request starts when the first of those in flight has ended.
"""

import heapq
from collections.abc import Sequence
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.readers.description import (
    NS_PER_S,
    ClientLoad,
    Clock,
    Description,
    Requests,
    Settings,
    SourceRequest,
)
from kvsim.readers.parsing import fields
from kvsim.readers.reader import CLIENT, MEASURED, SERVER, STREAM, Sniffed, Source

_LISTS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors")
_MS = {
    f"{key}_{name}_ms": f"{name.removesuffix('l') if name == 'e2el' else name}_{stat}_s"
    for name in ("ttft", "tpot", "itl", "e2el")
    for key, stat in (("median", "p50"), *((s, s) for s in ("mean", "p50", "p90", "p95", "p99")))
}


class VllmBenchResult(Source):
    """One run."""

    rank = CLIENT
    what = "a result of `vllm bench serve`"
    gives = SERVER | STREAM | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """By keys that every version writes; `--append-result` writes a run a line."""
        first = source.document or source.first_record()
        first = first[0] if isinstance(first, list) else first
        return (
            isinstance(first, dict)
            and {"total_input_tokens", "request_throughput", "num_prompts"} <= first.keys()
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Its requests if it has them, else what was done on average."""
        if not isinstance(source.document, dict):
            raise InputError(
                "several results in one file",
                where=source.name,
                remedy="give one run: cut its line into a file of its own",
            )
        table, where = source.object(), source.name
        model = fields.text(table.get("model_id"))
        seconds = fields.number(table, "duration", where)
        measured = {
            figure: value / 1000
            for key, figure in _MS.items()
            if (value := fields.number(table, key, where)) is not None
        }
        if seconds is not None:
            measured["duration_s"] = seconds
        notes: list[str] = []
        requests = _requests(table, where, notes)
        return Description(
            Settings.parse({"served_model_name": model}, where),
            requests=requests,
            load=_load(table, where),
            measured=measured,
            notes=tuple(notes),
        )


def _load(table: dict[str, Any], where: str) -> ClientLoad | None:
    count = fields.tokens(table.get("completed"), f"{where}: completed")
    if not count:
        return None
    totals = [
        fields.tokens(table.get(key), f"{where}: {key}") or 0
        for key in ("total_input_tokens", "total_output_tokens")
    ]
    rate = table.get("request_rate")
    return ClientLoad.parse(
        {
            "num_requests": count,
            "prompt_tokens": totals[0] / count,
            "output_tokens": totals[1] / count,
            "rate_per_s": None if rate in ("inf", None) else rate,
            "burstiness": table.get("burstiness") or 1.0,
            "max_concurrency": table.get("max_concurrency"),
        },
        where,
    )


def _requests(table: dict[str, Any], where: str, notes: list[str]) -> Requests | None:
    """The rows; those that failed left out."""
    columns = {name: fields.rows(table.get(name), f"{where}: {name}") for name in _LISTS}
    count = len(columns["input_lens"])
    if not count:
        return None
    for name, column in columns.items():
        if column and len(column) != count:
            raise InputError(
                "the lists are not equally long", where=f"{where}: {name}",
                value=len(column), limit=count,
            )  # fmt: skip
    spans = [_span(columns, index, where) for index in range(count)]
    failed = [bool(columns["errors"] and columns["errors"][index]) for index in range(count)]
    starts, clock = _starts(table, columns, spans, where, notes)
    rows = []
    for index, (start, (ttft, e2e)) in enumerate(zip(starts, spans, strict=True)):
        output = fields.tokens(_at(columns, "output_lens", index), f"{where}: output_lens")
        if failed[index] or not output:
            continue
        rows.append(
            SourceRequest(
                f"bench-{index}",
                start,
                fields.tokens(columns["input_lens"][index], f"{where}: input_lens"),
                output,
                first_token_ns=_plus(start, ttft),
                last_token_ns=_plus(start, e2e),
            )
        )
    if len(rows) < count:
        notes.append(f"{count - len(rows):,} of {count:,} requests failed and are left out")
    return Requests(tuple(rows), clock) if rows else None


def _plus(start: int | None, span: int | None) -> int | None:
    return None if start is None or span is None else start + span


def _at(columns: dict[str, list[Any]], name: str, index: int) -> Any:
    return columns[name][index] if columns[name] else None


def _span(columns: dict[str, list[Any]], index: int, where: str) -> tuple[int | None, int | None]:
    """(time to the first token, to the last one) in ns."""
    ttft = fields.nanoseconds(_at(columns, "ttfts", index), f"{where}: ttfts")
    if ttft is None or not columns["itls"]:
        return ttft, None
    gaps = fields.rows(columns["itls"][index], f"{where}: itls")
    spans = [fields.nanoseconds(gap, f"{where}: itls") or 0 for gap in gaps]
    return ttft, ttft + sum(spans)


def _starts(
    table: dict[str, Any],
    columns: dict[str, list[Any]],
    spans: Sequence[tuple[int | None, int | None]],
    where: str,
    notes: list[str],
) -> tuple[list[int | None], Clock]:
    """When each request was sent, on which clock."""
    if columns["start_times"]:
        starts = [fields.nanoseconds(at, f"{where}: start_times") for at in columns["start_times"]]
        begun = fields.number(table, "benchmark_start_time_unix", where)
        known = [at for at in starts if at is not None]
        if begun is None or not known:
            return starts, "own"
        notes.append("the first request is taken to start with the benchmark")
        zero = round(begun * NS_PER_S) - min(known)
        return [None if at is None else at + zero for at in starts], "unix"
    limit = table.get("max_concurrency")
    ends = [e2e for _, e2e in spans if e2e is not None]
    if table.get("request_rate") != "inf" or len(ends) < len(spans):
        notes.append("when the requests were sent is not recorded")
        return [None] * len(spans), "own"
    flying: list[int] = []
    found: list[int | None] = []
    for e2e in ends:
        full = isinstance(limit, int) and len(flying) >= limit
        start = heapq.heappop(flying) if full else 0
        heapq.heappush(flying, start + e2e)
        found.append(start)
    notes.append(
        "when the requests were sent is not recorded: each is taken to start when the first of "
        f"{limit or 'all'} in flight has ended"
    )
    return found, "own"
