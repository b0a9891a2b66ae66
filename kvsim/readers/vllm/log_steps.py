"""The steps that vLLM logs with `--enable-logging-iteration-details`, one per line.

From 0.14 on the engine core writes the line, since about 0.25 the front end does. The latter's
lines begin with the engine's number, end with the pool's usage, and have `(dummy)` for a rank
without work. Recomputed tokens of preempted requests are counted as generation tokens. An empty
step is written with zeros.
"""

import re
from collections.abc import Iterable

from kvsim.observed.logged_steps import LoggedStep
from kvsim.readers.vllm.log_gauges import clock_ns

MARK = "iteration elapsed time"
_STEP = re.compile(
    r"Iteration\((?P<number>\d{1,18})\): (?P<prefill_requests>\d{1,9}) context requests, "
    r"(?P<prefill_tokens>\d{1,9}) context tokens, "
    r"(?P<decode_requests>\d{1,9}) generation requests, "
    r"(?P<decode_tokens>\d{1,9}) generation tokens, iteration elapsed time: "
    r"(?P<elapsed_ms>\d{1,9}\.?\d{0,6}) ms(?P<dummy> \(dummy\))?"
    r"(?:, \w+ KV cache usage: (?P<usage>\d{1,3}\.?\d{0,6})%)?"
)
_RANK = re.compile(r"Engine (\d+): Iteration|EngineCore_DP(\d+)\b")


def step_lines(lines: Iterable[str], notes: list[str]) -> tuple[LoggedStep, ...]:
    """The steps in order of their lines; a note counts steps that computed nothing."""
    found: list[LoggedStep] = []
    idle, first_ns = 0, None
    for line in lines:
        step = _STEP.search(line) if MARK in line else None
        if step is None:
            continue
        row = step.groupdict()
        usage, dummy = row.pop("usage"), row.pop("dummy")
        if not any(int(row[name]) for name in ("prefill_tokens", "decode_tokens")) and not dummy:
            idle += 1
            continue
        now_ns = clock_ns(line)
        first_ns = now_ns if first_ns is None else first_ns
        rank = _RANK.search(line)
        if now_ns is not None and first_ns is not None and now_ns >= first_ns:
            row["time_s"] = (now_ns - first_ns) / 1e9
        if usage is not None:
            row["kv_usage"] = min(1.0, round(float(usage) / 100, 9))
        if dummy:
            row["dummy"] = True
        if rank:
            row["rank"] = rank[1] or rank[2]
        found.append(LoggedStep.parse({"line": "iteration", **row}, "log"))
    if idle:
        notes.append(f"{idle:,} steps that computed nothing are left out")
    return tuple(found)
