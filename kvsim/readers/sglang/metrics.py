"""A scrape of an SGLang server's /metrics: KV pool, host memory, totals since the start."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kvsim.plumbing.counts import whole
from kvsim.plumbing.units import MIB
from kvsim.readers.description import Description, Scrape, ServerSettings, transfer_notes
from kvsim.readers.parsing.prometheus import Metric, family, finite, metrics, started_s
from kvsim.readers.reader import ENGINE_ITSELF, MEASURED, SERVER, Sniffed, Source

_PREFIX = "sglang:"
_LINE = re.compile(rb"^sglang:\w", re.MULTILINE)
# A total, and the figure it is (SGLang's docs/references/production_metrics.md).
_TOTALS = {
    "prompt_tokens_total": "prompt_tokens",
    "generation_tokens_total": "generation_tokens",
    "num_retracted_requests_total": "preemptions",
    "evicted_tokens_total": "evicted_tokens",
    "load_back_tokens_total": "tier_loaded_tokens",
    "load_back_duration_seconds_sum": "tier_load_busy_s",
    "prefetched_tokens_total": "storage_loaded_tokens",
    "backuped_tokens_total": "storage_stored_tokens",
    "kv_transfer_latency_ms_count": "kv_transfers",
    "num_transfer_failed_reqs_total": "kv_failed_transfers",
    "num_bootstrap_failed_reqs_total": "kv_failed_bootstraps",
}
_MEANS = {
    "time_to_first_token_seconds": "ttft_mean_s",
    "inter_token_latency_seconds": "itl_mean_s",
    "e2e_request_latency_seconds": "e2e_mean_s",
    "queue_time_seconds": "queue_mean_s",
}
# Where a cached token was (label cache_source), and the figure that it counts in.
_CACHED = {"host": "tier_hit_tokens", "storage": "storage_hit_tokens"}
_READ = frozenset(
    family(name)
    for name in (
        *(*_TOTALS, *_MEANS, "cached_tokens", "cache_config_info", "max_total_num_tokens"),
        *("hicache_host_total_tokens", "kv_transfer_total_mb", "kv_transfer_latency_ms"),
        *("num_running_reqs", "num_queue_reqs", "token_usage"),
    )
)
_HARMLESS = re.compile(
    r"^(?:python_|process_|http_|sglang:(?:num_requests|num_aborted|func_latency|engine_startup|"
    r"engine_load|per_stage|uncached_prompt|num_grammar|gen_throughput|cache_hit_rate|utilization|"
    r"is_cuda_graph|num_used_tokens|num_unique|routing_key|realtime_tokens|forward_|"
    r"num_prefill_|num_decode_|prompt_tokens_hist|generation_tokens_hist|kv_(?:used|available)|"
    r"spec_accept_rate|new_token_ratio|estimated_|run_batch|time_per_output|page_size))"
)
# All ranks of a tensor-parallel group report the same numbers.
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


class SGLangMetrics(Source):
    """Prometheus text with SGLang's names."""

    rank = ENGINE_ITSELF
    what = "a scrape of an SGLang server's /metrics"
    gives = SERVER | MEASURED
    harmless = _HARMLESS

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the text by a line that begins with SGLang's prefix."""
        return source.document is None and (
            source.holds("# HELP sglang:", "# TYPE sglang:")
            or _LINE.search(source.data) is not None
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """The pool and its pages, and the figures since the server started."""
        everything = list(metrics(source.string(), source.name, source.ledger))
        samples = [
            sample
            for sample in everything
            if sample.name.startswith(_PREFIX)
            and finite(sample.value)
            and all(sample.labels.get(rank, "0") == "0" for rank in _RANKS)
        ]
        ledger = source.ledger
        for sample in samples:
            if ledger is not None and family(sample.name.removeprefix(_PREFIX)) in _READ:
                ledger.take("metrics", "", family(sample.name))
        found = ServerSettings.parse(_settings(samples), source.name)
        sums = sums_of(samples)
        figures = figures_of_sums(sums)
        scrape = Scrape(started_s(everything), sums)
        notes = transfer_notes(figures)
        return Description(found, measured=figures, notes=notes, scrape=scrape)


def _settings(samples: Iterable[Metric]) -> dict[str, Any]:
    found: dict[str, Any] = {"engine": "sglang"}
    least: dict[str, int] = {}  # of several data-parallel ranks
    for name, labels, value in samples:
        plain = name.removeprefix(_PREFIX)
        if "model_name" in labels:
            found.setdefault("served_model_name", labels["model_name"])
        if plain == "cache_config_info" and "page_size" in labels:
            found["block_size"] = whole(labels["page_size"])
        if plain in ("max_total_num_tokens", "hicache_host_total_tokens") and value >= 1:
            least[plain] = min(int(value), least.get(plain, int(value)))
    if tokens := least.get("max_total_num_tokens"):
        found["kv_cache_tokens"] = tokens
    if host := least.get("hicache_host_total_tokens"):
        found["enable_hierarchical_cache"] = True
        if tokens:
            found["hicache_ratio"] = host / tokens
    return found


def sums_of(samples: Iterable[Metric]) -> dict[str, float]:
    """Every metric summed over the server's engines, under its name without SGLang's prefix."""
    sums: dict[str, float] = {}
    for name, labels, value in samples:
        plain = name.removeprefix(_PREFIX)
        sums[plain] = sums.get(plain, 0.0) + value
        _add_cached(sums, plain, labels, value)
    return sums


def figures_of_sums(sums: Mapping[str, float]) -> dict[str, float]:
    """Figures such as totals and mean latencies, computed from summed metrics."""
    found = {figure: sums[plain] for plain, figure in _TOTALS.items() if plain in sums}
    found |= {figure: sums[figure] for figure in _CACHED.values() if figure in sums}
    if "cached_tokens_total" in sums:
        found["prefix_cache_hit_tokens"] = sums["cached_tokens_total"]
    for plain, figure in _MEANS.items():
        if count := sums.get(f"{plain}_count"):
            found[figure] = sums.get(f"{plain}_sum", 0.0) / count
    # SGLang's MB are MiB (observability/req_time_stats.py, 0.5.23).
    mib, busy_ms = sums.get("kv_transfer_total_mb_sum"), sums.get("kv_transfer_latency_ms_sum")
    if mib and busy_ms:
        found["kv_transfer_bytes"], found["kv_transfer_busy_s"] = mib * MIB, busy_ms / 1000
        found["kv_transfer_gb_per_s"] = mib * MIB / busy_ms / 1e6
    return found


def _add_cached(
    sums: dict[str, float], plain: str, labels: Mapping[str, str], value: float
) -> None:
    figure = _CACHED.get(labels.get("cache_source", ""))
    if plain == "cached_tokens_total" and figure is not None:
        sums[figure] = sums.get(figure, 0.0) + value
