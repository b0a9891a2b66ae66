"""Export a run as `vllm bench serve --save-result --save-detailed` would have written it.

The gaps between a request's tokens are all set to their mean, since times of single tokens are not
recorded. Percentiles are computed from the simulation itself. Generated texts are empty.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from kvsim.interchange.exports.export import Answered, Export, Exported, Floats, answered

_PERCENTILES = (50, 90, 95, 99)


class VllmBenchExport(Export):
    """One JSON object; requests that the engine rejected count as failed."""

    what: ClassVar[str] = "a result of `vllm bench serve`, with its requests"

    def files(self, exported: Exported) -> Iterator[tuple[str, Iterator[str]]]:
        yield "bench.json", iter([json.dumps(_result(exported)) + "\n"])


def _result(exported: Exported) -> dict[str, Any]:
    summary, done = exported.run.summary, answered(exported.run)
    makespan = summary.makespan_s or 1.0
    inputs, outputs = int(done.prompt_tokens.sum()), int(done.output_tokens.sum())
    return {
        "backend": "kvsim",
        "endpoint_type": "simulated",
        "label": exported.run.label,
        "model_id": exported.model,
        "tokenizer_id": exported.model,
        "num_prompts": len(exported.run.requests),
        **_load(exported.scenario.get("workload", {})),
        "duration": summary.makespan_s,
        "completed": len(done.ids),
        "failed": summary.requests.rejected,
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "request_throughput": len(done.ids) / makespan,
        "output_throughput": outputs / makespan,
        "total_token_throughput": (inputs + outputs) / makespan,
        **_statistics("ttft", done.ttft_s),
        **_statistics("tpot", done.tpot_s[done.output_tokens > 1]),
        **_gaps(summary.itl_s),
        **_statistics("e2el", done.e2e_s),
        **_rows(done),
    }


def _load(workload: Mapping[str, Any]) -> dict[str, Any]:
    arrivals = workload.get("arrivals") or {}
    rate = arrivals.get("rate_per_s")
    return {
        "request_rate": "inf" if rate is None else rate,
        "burstiness": 1.0 / arrivals["cv"] ** 2 if arrivals.get("kind") == "gamma" else 1.0,
        "max_concurrency": arrivals.get("num_users", workload.get("max_concurrency")),
    }


def _statistics(name: str, seconds: Floats) -> dict[str, float]:
    if not len(seconds):
        return {}
    ms = 1000 * seconds
    found = {
        f"mean_{name}_ms": float(ms.mean()),
        f"median_{name}_ms": float(np.median(ms)),
        f"std_{name}_ms": float(ms.std()),
    }
    for percent in _PERCENTILES:
        found[f"p{percent}_{name}_ms"] = float(np.percentile(ms, percent))
    return found


def _gaps(itl_s: Mapping[str, float | None]) -> dict[str, float]:
    names = {"mean": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}
    return {
        f"{name}_itl_ms": 1000 * value
        for key, name in names.items()
        if (value := itl_s.get(key)) is not None
    }


def _rows(done: Answered) -> dict[str, list[Any]]:
    return {
        "input_lens": done.prompt_tokens.tolist(),
        "output_lens": done.output_tokens.tolist(),
        "ttfts": done.ttft_s.tolist(),
        "itls": [
            [gap] * (tokens - 1)
            for gap, tokens in zip(done.tpot_s.tolist(), done.output_tokens.tolist(), strict=True)
        ],
        "start_times": done.arrival_s.tolist(),
        "generated_texts": [""] * len(done.ids),
        "errors": [""] * len(done.ids),
    }
