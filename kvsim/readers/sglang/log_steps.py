"""The steps in SGLang's log: one line per prefill step, and one per about forty decode steps."""

import re
from collections.abc import Iterable

from kvsim.observed.logged_steps import LoggedStep
from kvsim.readers.vllm.log_gauges import clock_ns

MARKS = ("Prefill batch", "Decode batch")
_COUNTS = {
    "prefill_requests": re.compile(r"#new-seq: (\d{1,9})"),
    "prefill_tokens": re.compile(r"#new-token: (\d{1,9})"),
    "cached_tokens": re.compile(r"#cached-token: (\d{1,9})"),
    "decode_requests": re.compile(r"#running-req: (\d{1,9})"),
    "queued_requests": re.compile(r"#queue-req: (\d{1,9})"),
    "pending_tokens": re.compile(r"#pending-token: (\d{1,12})"),
    "held_tokens": re.compile(r"#(?:full )?token: (\d{1,12})"),
    "tokens_per_s": re.compile(r"(?:gen|input) throughput \(token/s\): (\d{1,12}\.?\d{0,6})"),
    "kv_usage": re.compile(r"token usage: ([01]\.?\d{0,6})"),
}
_GRAPH = re.compile(r"cuda graph: (True|False)")
_RANK = re.compile(r"\d\d:\d\d:\d\d ((?:(?:DP|TP|PP|EP)\d+ ?)+)\]")


def step_lines(lines: Iterable[str]) -> tuple[LoggedStep, ...]:
    """The steps in order of their lines."""
    found: list[LoggedStep] = []
    first_ns = None
    for line in lines:
        kind = next((mark for mark in MARKS if mark in line), None)
        if kind is None:
            continue
        row: dict[str, object] = {"line": kind.split()[0].lower()}
        for name, pattern in _COUNTS.items():
            if match := pattern.search(line):
                row[name] = match[1]
        if graph := _GRAPH.search(line):
            row["cuda_graph"] = graph[1] == "True"
        if rank := _RANK.search(line):
            row["rank"] = rank[1].strip()
        now_ns = clock_ns(line)
        first_ns = now_ns if first_ns is None else first_ns
        if now_ns is not None and first_ns is not None and now_ns >= first_ns:
            row["time_s"] = (now_ns - first_ns) / 1e9
        found.append(LoggedStep.parse(row, "log"))
    return tuple(found)
