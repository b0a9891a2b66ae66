"""Recorded results in the JSON form of `vllm bench serve --save-result --save-detailed`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from kvsim.record.engines import LiveEngine
from kvsim.record.reply import Reply

_PERCENTILES = (50, 90, 95, 99)
# Histograms of the engines, by the latency that each is.
_MEANS = {
    "ttft": ("time_to_first_token_seconds",),
    "tpot": ("request_time_per_output_token_seconds",),
    "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "e2el": ("e2e_request_latency_seconds",),
}


def ended_text(unix_s: float) -> str:
    """A Unix time as the benchmark writes its `date`: local time of this machine."""
    return datetime.fromtimestamp(unix_s).strftime("%Y%m%d-%H%M%S")


def bench_of_replies(
    replies: Sequence[Reply], model: str, load: Mapping[str, Any], begun_unix_s: float
) -> dict[str, Any]:
    """The benchmark result for requests that kvsim sent.

    replies are in the order in which they were sent. load has request_rate, burstiness and
    max_concurrency. begun_unix_s is when the first request was sent.
    """
    whole = [reply for reply in replies if not reply.error]
    ends = [reply.came_s[-1] for reply in whole]
    duration_s = max(ends) - min(reply.sent_s for reply in replies)
    prompts, outputs = (
        sum(getattr(reply, name) for reply in whole) for name in ("prompt_tokens", "output_tokens")
    )
    ttft_s = [reply.came_s[0] - reply.sent_s for reply in whole]
    e2e_s = [reply.came_s[-1] - reply.sent_s for reply in whole]
    tpot_s = [
        (reply.came_s[-1] - reply.came_s[0]) / (reply.output_tokens - 1)
        for reply in whole
        if reply.output_tokens > 1
    ]
    itls = [np.diff(reply.came_s).tolist() for reply in replies]
    return {
        "date": ended_text(begun_unix_s + duration_s),
        "backend": "kvsim record",
        "endpoint_type": "completions",
        "model_id": model,
        "tokenizer_id": model,
        "num_prompts": len(replies),
        **load,
        "benchmark_start_time_unix": begun_unix_s,
        "duration": duration_s,
        "completed": len(whole),
        "failed": len(replies) - len(whole),
        "total_input_tokens": prompts,
        "total_output_tokens": outputs,
        "request_throughput": len(whole) / duration_s,
        "output_throughput": outputs / duration_s,
        "total_token_throughput": (prompts + outputs) / duration_s,
        **_statistics("ttft", ttft_s),
        **_statistics("tpot", tpot_s),
        **_statistics("itl", [gap for gaps in itls for gap in gaps]),
        **_statistics("e2el", e2e_s),
        "input_lens": [reply.prompt_tokens for reply in replies],
        "output_lens": [reply.output_tokens for reply in replies],
        "ttfts": [reply.came_s[0] - reply.sent_s if reply.came_s else 0.0 for reply in replies],
        "itls": itls,
        "start_times": [reply.sent_s for reply in replies],
        "generated_texts": [""] * len(replies),
        "errors": [reply.error for reply in replies],
    }


def bench_of_counters(
    engine: LiveEngine,
    before: Mapping[str, float],
    after: Mapping[str, float],
    model: str,
    seconds: float,
    ended_unix_s: float,
) -> dict[str, Any] | None:
    """The benchmark result of a load that other clients sent, computed from the counters of two
    scrapes.

    seconds is the time between the scrapes. None if the engine has no counter of requests, or no
    request ended in between.
    """

    def grown(name: str) -> float:
        value = after.get(f"{name}_total", after.get(name, 0.0))
        return value - before.get(f"{name}_total", before.get(name, 0.0))

    count = round(grown(engine.finished)) if engine.finished else 0
    if count < 1 or seconds <= 0:
        return None
    prompts, outputs = round(grown(engine.prompts)), round(grown(engine.outputs))
    found: dict[str, Any] = {
        "date": ended_text(ended_unix_s),
        "backend": "kvsim record --watch",
        "model_id": model,
        "num_prompts": count,
        "request_rate": count / seconds,
        "burstiness": 1.0,
        "max_concurrency": None,
        "duration": seconds,
        "completed": count,
        "total_input_tokens": prompts,
        "total_output_tokens": outputs,
        "request_throughput": count / seconds,
        "output_throughput": outputs / seconds,
        "total_token_throughput": (prompts + outputs) / seconds,
    }
    for latency, names in _MEANS.items():
        for name in names:
            answers = grown(f"{name}_count")
            if answers > 0 and f"mean_{latency}_ms" not in found:
                found[f"mean_{latency}_ms"] = 1e3 * grown(f"{name}_sum") / answers
    return found


def _statistics(name: str, seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    ms = 1000 * np.asarray(seconds)
    found = {
        f"mean_{name}_ms": float(ms.mean()),
        f"median_{name}_ms": float(np.median(ms)),
        f"std_{name}_ms": float(ms.std()),
    }
    return found | {f"p{each}_{name}_ms": float(np.percentile(ms, each)) for each in _PERCENTILES}
