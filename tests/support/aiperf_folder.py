"""An observed run as the AIPerf folder of the same run."""

import json
from pathlib import Path

from kvsim.observed.folder import ObservedRun
from kvsim.observed.vllm_meta import VllmMeta

BEGAN_NS = 1_787_240_443_423_884_000  # any moment since 1970


def write_aiperf_folder(folder: Path, run: ObservedRun) -> None:
    """Records, the summary, and the server's metrics, in the producer's documented form."""
    folder.mkdir()
    write_records(folder / "profile_export.jsonl", run)
    write_server_metrics(folder / "server_metrics_export.jsonl", run)
    summary = {
        "schema_version": "1.4",
        "aiperf_version": "0.12.0",
        "request_latency": {"unit": "ms", "avg": 1.0},
        "input_config": {"models": {"items": [{"name": run.meta.model}]}},
        "run_info": {"cli_command": "aiperf profile --api-key sk-not-to-be-seen"},
    }
    (folder / "profile_export_aiperf.json").write_text(json.dumps(summary))
    (folder / "inputs.json").write_text('{"data": [{"payload": "a prompt not to be seen"}]}')


def write_records(path: Path, run: ObservedRun) -> None:
    lines = [record(0, "warmup", "never-mind", 12, 3, 1.0, 2.0)]
    lines += [
        record(
            round(row.arrival_s * 1e9),
            "profiling",
            row.id,
            row.prompt_tokens,
            row.output_tokens,
            1e3 * (row.first_token_s - row.arrival_s),
            1e3 * (row.last_token_s - row.arrival_s),
        )
        for row in run.rows
    ]
    # In order of their ends, as records are written.
    path.write_text("".join(sorted(f"{line}\n" for line in lines)))


def record(
    after_ns: int, phase: str, name: str, prompt: int, output: int, ttft_ms: float, e2e_ms: float
) -> str:
    start = BEGAN_NS + after_ns
    metrics = {
        "time_to_first_token": {"value": ttft_ms, "unit": "ms"},
        "request_latency": {"value": e2e_ms, "unit": "ms"},
        "input_sequence_length": {"value": prompt, "unit": "tokens"},
        "output_sequence_length": {"value": output, "unit": "tokens"},
    }
    metadata = {
        "x_request_id": name,
        "x_correlation_id": f"session-{name}",
        "request_start_ns": start,
        "request_end_ns": start + round(1e6 * e2e_ms),
        "benchmark_phase": phase,
        "was_cancelled": False,
    }
    return json.dumps({"metadata": metadata, "metrics": metrics, "error": None})


def write_server_metrics(path: Path, run: ObservedRun) -> None:
    assert isinstance(run.meta, VllmMeta)
    labels = {
        "engine": "0",
        "block_size": str(run.meta.block_size),
        "num_gpu_blocks": str(run.meta.num_gpu_blocks),
        "enable_prefix_caching": str(run.meta.enable_prefix_caching),
        "gpu_memory_utilization": "0.9",
        "cache_dtype": "auto",
    }
    lines = []
    for tick in run.ticks:
        metrics = {
            "vllm:cache_config_info": [{"labels": labels, "value": 1.0}],
            "vllm:num_requests_running": [{"labels": {"engine": "0"}, "value": tick.running}],
            "vllm:num_requests_waiting": [{"labels": {"engine": "0"}, "value": tick.waiting}],
            "vllm:kv_cache_usage_perc": [
                {"labels": {"engine": "0"}, "value": (tick.kv_cache_pct or 0.0) / 100}
            ],
        }
        line = {
            "endpoint_url": "http://localhost:8000/metrics",
            "timestamp_ns": BEGAN_NS + round(tick.t * 1e9),
            "metrics": metrics,
        }
        lines.append(json.dumps(line))
    path.write_text("".join(f"{line}\n" for line in lines))
