"""Convert vLLM's metrics, from a scrape or a time series, to settings, gauges and figures."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kvsim.plumbing.counts import whole
from kvsim.readers.description import ServerSettings
from kvsim.readers.parsing.fields import MOST_TOKENS
from kvsim.readers.parsing.ledger import SourceLedger
from kvsim.readers.parsing.prometheus import Metric, family, finite
from kvsim.readers.vllm.args import UNSAID, settings_of

PREFIX = "vllm:"
BYTES_PER_GB = 10**9
INFO = "cache_config_info"
# vLLM's label of its cache configuration: the argument of that meaning.
_LABELS = {
    "block_size": "block_size",
    "cache_dtype": "kv_cache_dtype",
    "enable_prefix_caching": "enable_prefix_caching",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "num_gpu_blocks": "num_gpu_blocks_override",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
    "kv_offloading_size": "kv_offloading_size",
}
GAUGES = {
    "num_requests_running": "running",
    "num_requests_waiting": "waiting",
    "kv_cache_usage_perc": "usage",
    "gpu_cache_usage_perc": "usage",  # before 0.10
}
# A total, and the figure it is.
_TOTALS = {
    "num_preemptions": "preemptions",
    "prompt_tokens": "prompt_tokens",
    "generation_tokens": "generation_tokens",
    "prefix_cache_queries": "prefix_cache_query_tokens",
    "prefix_cache_hits": "prefix_cache_hit_tokens",
    "gpu_prefix_cache_queries": "prefix_cache_query_tokens",
    "gpu_prefix_cache_hits": "prefix_cache_hit_tokens",
    "external_prefix_cache_queries": "tier_query_tokens",
    "external_prefix_cache_hits": "tier_hit_tokens",
    "kv_offload_store_bytes": "tier_stored_bytes",
    "kv_offload_load_bytes": "tier_loaded_bytes",
    "kv_offload_store_time": "tier_store_busy_s",
    "kv_offload_load_time": "tier_load_busy_s",
    "kv_offload_allocation_failure": "tier_failed_stores",
    "nixl_bytes_transferred_sum": "kv_transfer_bytes",
    "nixl_xfer_time_seconds_sum": "kv_transfer_busy_s",
    "nixl_xfer_time_seconds_count": "kv_transfers",
    "nixl_num_failed_transfers": "kv_failed_transfers",
    "nixl_num_kv_expired_reqs": "kv_expired_prompts",
}
# Bytes and seconds of copies by their label, as vLLM named them before it had names of each.
_COPIES = {
    ("kv_offload_total_bytes", "GPU_to_CPU"): "kv_offload_store_bytes",
    ("kv_offload_total_bytes", "CPU_to_GPU"): "kv_offload_load_bytes",
    ("kv_offload_total_time", "GPU_to_CPU"): "kv_offload_store_time",
    ("kv_offload_total_time", "CPU_to_GPU"): "kv_offload_load_time",
}
# Of drafts: verified, proposed, accepted.
_DRAFTED = {
    "spec_decode_num_drafts": "drafts",
    "spec_decode_num_draft_tokens": "draft_tokens",
    "spec_decode_num_accepted_tokens": "accepted_draft_tokens",
}
# Labels that are read beside these, and those that say nothing that a scenario has.
_OTHER_LABELS = (
    *("kv_cache_size_tokens", "kv_cache_max_concurrency", "engine", "model_name"),
    *(
        "is_attention_free",
        "num_cpu_blocks",
        "prefix_caching_hash_algo",
        "user_specified_block_size",
    ),
    *("user_specified_mamba_block_size", "_block_size_resolved", "kv_cache_metrics"),
    *("kv_cache_metrics_sample", "kv_sharing_fast_prefill", "skip_cache_init"),
    *("hash_block_size", "kv_offloading_backend"),
)
_MEANS = {
    "time_to_first_token_seconds": "ttft_mean_s",
    "inter_token_latency_seconds": "itl_mean_s",
    "time_per_output_token_seconds": "itl_mean_s",  # as it was called before 0.11
    "request_time_per_output_token_seconds": "tpot_mean_s",
    "e2e_request_latency_seconds": "e2e_mean_s",
    "request_queue_time_seconds": "queue_mean_s",
}


# Metrics of the process, of its front end, and of vLLM that say nothing which a scenario has.
HARMLESS = re.compile(
    r"^(?:python_|process_|http_|vllm:(?:request_success|iteration_tokens_total|info|"
    r"request_params_|request_(?:inference|prefill|decode)_time|engine_sleep_state|"
    r"request_(?:prompt|generation|max_num_generation)_tokens|mm_cache|lora_requests_info|"
    r"request_prefill_kv_computed|prompt_tokens_(?:by_source|cached|recomputed)|estimated_|"
    r"kv_block_|num_requests_swapped|num_requests_waiting_by_reason|corrupted|tool_call|"
    r"time_per_output|api_server|healthcheck|spec_decode_num_accepted_tokens_per_pos|"
    r"cpu_|model_forward|model_execute|avg_|gpu_cache|brand|eplb|queue_time|nixl_num_descr|"
    r"nixl_post|num_requests_(?:deferred|skipped)))"
)
_UNSET = ("", "[]", "none", "auto", "false", "0")  # of labels: what nobody asked for
_READ = frozenset(
    family(name)
    for name in (*GAUGES, *_TOTALS, *_MEANS, INFO, *(name for name, _ in _COPIES), *_DRAFTED)
)


def take_names(ledger: SourceLedger | None, samples: Iterable[Metric]) -> None:
    """Record in the ledger the metrics that are read, and the labels of the cache
    config that are.
    """
    for name, labels, _ in samples if ledger is not None else ():
        assert ledger is not None
        plain = family(name.removeprefix(PREFIX))
        if plain in _READ:
            ledger.take("metrics", "", family(name))
        if plain == INFO:
            said = (name for name, value in labels.items() if value.lower() not in _UNSET)
            ledger.there("labels", INFO, said)
            for label in (*_LABELS, *_OTHER_LABELS):
                ledger.take("labels", INFO, label)


def cache_settings(labels: Mapping[str, str], where: str) -> dict[str, Any]:
    """Settings from the labels of `vllm:cache_config_info`."""
    arguments = {name: labels[label] for label, name in _LABELS.items() if label in labels}
    found = settings_of(arguments, where).reported()
    tokens, concurrency = labels.get("kv_cache_size_tokens"), labels.get("kv_cache_max_concurrency")
    if tokens not in UNSAID and tokens is not None:
        found["kv_cache_tokens"] = whole(tokens)
        if concurrency not in UNSAID and concurrency is not None and float(concurrency) > 0:
            # By definition: tokens = concurrency * max_model_len.
            longest = whole(tokens) / float(concurrency)
            found["max_model_len"] = max(round(min(longest, MOST_TOKENS)), 1)
    return found


def settings_from(samples: Iterable[Metric], where: str) -> ServerSettings:
    """Settings from a scrape, with the average rate of copies to and from a KV tier."""
    found: dict[str, Any] = {}
    samples = list(samples)
    add_settings(found, samples, where)
    figures = figures_from(samples)
    for way, moved in (("store", "stored"), ("load", "loaded")):
        num_bytes, busy_s = figures.get(f"tier_{moved}_bytes"), figures.get(f"tier_{way}_busy_s")
        if num_bytes and busy_s:
            # Seconds of a scrape are decimals: digits beyond the sixth are noise.
            found[f"{way}_gb_per_s"] = float(f"{num_bytes / busy_s / BYTES_PER_GB:.6g}")
    return ServerSettings.parse(found, where)


def speculation_from(figures: Mapping[str, float]) -> dict[str, Any]:
    """num_speculative_tokens and acceptance rate, from the counters of drafts; {} without drafts.

    No metric gives the drafter.
    """
    drafts, proposed = figures.get("drafts"), figures.get("draft_tokens")
    if not drafts or not proposed:
        return {}
    accepted = figures.get("accepted_draft_tokens", 0.0) / proposed
    return {
        "num_speculative_tokens": max(1, round(proposed / drafts)),
        "acceptance_rate": round(min(accepted, 1.0), 4),
    }


def add_settings(found: dict[str, Any], samples: Iterable[Metric], where: str) -> None:
    """Add to `found` the settings in metric labels; if there are several models, the first one's
    name.
    """
    ranks: set[str] = set()
    for name, labels, _ in samples:
        if not name.startswith(PREFIX):
            continue
        found["engine"] = "vllm"
        if "engine" in labels:
            ranks.add(labels["engine"])
            if len(ranks) > 1:
                found["data_parallel_size"] = len(ranks)
        if "model_name" in labels:
            found.setdefault("served_model_name", labels["model_name"])
        if name.removeprefix(PREFIX) == INFO:
            found |= cache_settings(labels, where)


def figures_from(samples: Iterable[Metric]) -> dict[str, float]:
    """Totals and means since the server started, summed over its engines."""
    return figures_of_sums(sums_of(samples))


def sums_of(samples: Iterable[Metric]) -> dict[str, float]:
    """Every metric summed over the server's engines, under its name without vLLM's prefix."""
    sums: dict[str, float] = {}
    older: dict[str, float] = {}
    for name, labels, value in samples:
        if name.startswith(PREFIX) and finite(value):
            plain = name.removeprefix(PREFIX)
            sums[plain] = sums.get(plain, 0.0) + value
            copies = (plain.removesuffix("_total"), labels.get("transfer_type", ""))
            if newer := _COPIES.get(copies):
                older[newer] = older.get(newer, 0.0) + value
    more = {name: total for name, total in older.items() if f"{name}_total" not in sums}
    return sums | more


def figures_of_sums(sums: Mapping[str, float]) -> dict[str, float]:
    """Figures such as totals and mean latencies, computed from summed metrics."""
    found = {}
    for plain, figure in (_TOTALS | _DRAFTED).items():
        total = sums.get(f"{plain}_total", sums.get(plain))
        if total is not None:
            found[figure] = total
    for plain, figure in _MEANS.items():
        count = sums.get(f"{plain}_count", 0.0)
        if count > 0:
            found[figure] = sums.get(f"{plain}_sum", 0.0) / count
    num_bytes, busy_s = found.get("kv_transfer_bytes"), found.get("kv_transfer_busy_s")
    if num_bytes and busy_s:
        found["kv_transfer_gb_per_s"] = num_bytes / busy_s / BYTES_PER_GB
    return found
