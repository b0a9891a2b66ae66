"""Export a run as AIPerf's artifact folder: records, summary, and server metrics over time."""

import json
from collections.abc import Iterator
from math import ceil
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from kvsim.interchange.exports.export import Export, Exported, Floats, answered, gauges
from kvsim.interchange.exports.families import config_labels, families
from kvsim.readers.aiperf.artifacts import RECORDS, SERIES, SUMMARY
from kvsim.readers.description import NS_PER_S
from kvsim.readers.parsing.fields import NS_PER_MS
from kvsim.readers.vllm.metric_names import INFO, PREFIX
from kvsim.version import VERSION

MS_PER_S = 1000
_PERCENTS = (1, 5, 10, 25, 50, 75, 90, 95, 99)
_ENDPOINT = "simulated"


class AIPerfExport(Export):
    """start_unix_s is the Unix time at which the run began. every_s is the time between scrapes of
    the server's metrics.
    """

    what: ClassVar[str] = "an AIPerf folder"
    folder: ClassVar[bool] = True
    start_unix_s: float = Field(default=0.0, ge=0, le=1e11)
    every_s: float = Field(default=1.0, gt=0)

    def files(self, exported: Exported) -> Iterator[tuple[str, Iterator[str]]]:
        zero_ns = round(self.start_unix_s * NS_PER_S)
        yield RECORDS, _records(exported, zero_ns)
        yield SUMMARY, iter([json.dumps(_summary(exported), indent=2) + "\n"])
        yield SERIES, _scrapes(exported, zero_ns, self.every_s)


def _records(exported: Exported, zero_ns: int) -> Iterator[str]:
    """JSON lines with one record per request, in order of completion."""
    done = answered(exported.run)
    for at in np.argsort(done.finish_s, kind="stable").tolist():
        arrival, first, last = (
            round(float(column[at]) * NS_PER_S)
            for column in (done.arrival_s, done.first_token_s, done.finish_s)
        )
        tokens = int(done.output_tokens[at])
        metrics = {
            "time_to_first_token": _value((first - arrival) / NS_PER_MS, "ms"),
            "request_latency": _value((last - arrival) / NS_PER_MS, "ms"),
            "inter_token_latency": _value((last - first) / NS_PER_MS / max(tokens - 1, 1), "ms"),
            "input_sequence_length": _value(int(done.prompt_tokens[at]), "tokens"),
            "output_sequence_length": _value(tokens, "tokens"),
            "output_token_count": _value(tokens, "tokens"),
        }
        metadata = {
            "session_num": at,
            "x_request_id": done.ids[at],
            "conversation_id": done.sessions[at],
            "turn_index": None if done.sessions[at] is None else 0,
            "request_start_ns": zero_ns + arrival,
            "request_end_ns": zero_ns + last,
            "benchmark_phase": "profiling",
            "was_cancelled": False,
        }
        yield json.dumps({"metadata": metadata, "metrics": metrics, "error": None}) + "\n"


def _value(value: float, unit: str) -> dict[str, Any]:
    return {"value": value, "unit": unit}


def _summary(exported: Exported) -> dict[str, Any]:
    summary, done = exported.run.summary, answered(exported.run)
    several = done.output_tokens > 1
    return {
        "schema_version": "1.4",
        "aiperf_version": f"simulated by kvsim {VERSION}",
        "request_count": {"unit": "requests", "avg": float(len(done.ids))},
        "request_throughput": {"unit": "requests/sec", "avg": summary.requests_per_s},
        "output_token_throughput": {"unit": "tokens/sec", "avg": summary.output_tokens_per_s},
        "time_to_first_token": _statistics(done.ttft_s * MS_PER_S, "ms"),
        "request_latency": _statistics(done.e2e_s * MS_PER_S, "ms"),
        "inter_token_latency": _statistics(done.tpot_s[several] * MS_PER_S, "ms"),
        "input_sequence_length": _statistics(done.prompt_tokens.astype(float), "tokens"),
        "output_sequence_length": _statistics(done.output_tokens.astype(float), "tokens"),
        "input_config": {"models": {"items": [{"name": exported.model}]}},
        "was_cancelled": False,
        "error_summary": [],
    }


def _statistics(values: Floats, unit: str) -> dict[str, Any]:
    if not len(values):
        return {"unit": unit, "count": 0}
    shares = np.percentile(values, _PERCENTS).tolist()
    return {
        "unit": unit,
        "avg": float(values.mean()),
        **{f"p{percent}": share for percent, share in zip(_PERCENTS, shares, strict=True)},
        "min": float(values.min()),
        "max": float(values.max()),
        "std": float(values.std()),
        "count": len(values),
        "sum": float(values.sum()),
    }


def _scrapes(exported: Exported, zero_ns: int, every_s: float) -> Iterator[str]:
    """JSON lines with one scrape of the server's gauges and counters each."""
    end = float(gauges(exported.run).time_s[-1])
    moments = np.arange(1, ceil(end / every_s) + 1).astype(np.float64) * every_s
    plain = [each for each in families(exported, moments) if each.kind != "histogram"]
    labels = {"engine": "0", "model_name": exported.model}
    config = [{"labels": config_labels(exported), "value": 1.0}]
    for at, moment in enumerate(moments.tolist()):
        metrics: dict[str, Any] = {f"{PREFIX}{INFO}": config}
        for family in plain:
            suffix = "_total" if family.kind == "counter" else ""
            value = float(family.values[at])
            metrics[f"{PREFIX}{family.name}{suffix}"] = [{"labels": labels, "value": value}]
        line = {
            "endpoint_url": _ENDPOINT,
            "timestamp_ns": zero_ns + round(moment * NS_PER_S),
            "metrics": metrics,
        }
        yield json.dumps(line) + "\n"
