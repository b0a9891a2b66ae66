"""vLLM's metrics of a run at given times, with vLLM's names, buckets and labels.

A request's tokens are placed evenly between its first and its last, since their individual times
are not recorded. All other values are counted as the engine counts them. All waiting is reported
with the reason `capacity`, and all requests with the finish reason `length`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.interchange.exports.export import Answered, Exported, Floats, answered, gauges

# As vLLM 0.25 to 0.33 have them (vllm/v1/metrics/loggers.py, buckets.py).
_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
         20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)  # fmt: skip
_TPOT = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
         20.0, 40.0, 80.0)  # fmt: skip
_E2E = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
        240.0, 480.0, 960.0, 1920.0, 7680.0)  # fmt: skip
_SAMPLES = (1.0, 2.0, 5.0, 10.0, 20.0)
_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
_TOKENS = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5))


class Family(NamedTuple):
    """One metric: a gauge, counter or histogram (kind).

    values [times] for a gauge or counter, [buckets, times] for a histogram, with +Inf last. total
    [times] is the histogram's sum. label is one further (name, value) label. Families that differ
    only in label values are adjacent.
    """

    name: str
    kind: str
    help: str
    values: NDArray[Any]
    bounds: tuple[float, ...] = ()
    total: Floats | None = None
    label: tuple[str, str] | None = None


def families(exported: Exported, moments: Floats) -> Iterator[Family]:
    """Every metric at the times `moments`, in seconds from the start, ascending."""
    seen = gauges(exported.run).at(moments)
    yield Family("num_requests_running", "gauge", "Sequences running.", seen.running)
    yield Family("num_requests_waiting", "gauge", "Sequences waiting.", seen.waiting)
    for reason, waiting in (("capacity", seen.waiting), ("deferred", np.zeros_like(seen.waiting))):
        yield Family(
            "num_requests_waiting_by_reason",
            "gauge",
            "Sequences waiting, by reason.",
            waiting,
            label=("reason", reason),
        )
    yield Family("kv_cache_usage_perc", "gauge", "KV memory taken, 1 = all.", seen.usage)
    done = answered(exported.run)
    order = np.argsort(done.first_token_s, kind="stable")
    begun, prompts = done.first_token_s[order], done.prompt_tokens[order]
    yield _counter("prompt_tokens", "Prompt tokens computed or hit.", begun, prompts, moments)
    yield _counter(
        "prefix_cache_queries", "Tokens looked up in the prefix cache.", begun, prompts, moments
    )
    cached, external = done.cached_tokens[order], done.tier_tokens[order]
    hits = cached - external
    yield _counter("prompt_tokens_cached", "Prompt tokens hit.", begun, cached, moments)
    for source, tokens in (
        ("local_compute", prompts - cached),
        ("local_cache_hit", hits),
        ("external_kv_transfer", external),
    ):
        by_source = _counter("prompt_tokens_by_source", "By source.", begun, tokens, moments)
        yield by_source._replace(label=("source", source))
    yield _counter("prefix_cache_hits", "Tokens found there.", begun, hits, moments)
    asked = prompts - hits if exported.scenario.get("tier") else np.zeros_like(hits)
    for name, words, tokens in (
        ("external_prefix_cache_queries", "Tokens looked up in tiers.", asked),
        ("external_prefix_cache_hits", "Tokens found in tiers.", external),
    ):
        yield _counter(name, words, begun, tokens, moments)
    yield Family(
        "generation_tokens", "counter", "Output tokens, placed evenly.", _generated(done, moments)
    )
    ended = np.argsort(done.finish_s, kind="stable")
    at = done.finish_s[ended]
    preempted = done.preemptions[ended]
    yield _counter(
        "num_preemptions", "Preemptions, when their request ended.", at, preempted, moments
    )
    answers = _counter("request_success", "Answered requests.", at, np.ones(len(at)), moments)
    yield answers._replace(label=("finished_reason", "length"))
    first = (begun, done.ttft_s[order], _TTFT)
    yield _histogram("time_to_first_token_seconds", "TTFT.", *first, moments)
    yield _inter_token(done, moments)
    for name, words, values, bounds in (
        ("request_time_per_output_token_seconds", "TPOT.", done.tpot_s, _TPOT),
        ("e2e_request_latency_seconds", "E2E.", done.e2e_s, _E2E),
        ("request_queue_time_seconds", "WAITING.", done.scheduled_s - done.arrival_s, _E2E),
        ("request_prefill_time_seconds", "PREFILL.", done.first_token_s - done.scheduled_s, _E2E),
        ("request_decode_time_seconds", "DECODE.", done.finish_s - done.first_token_s, _E2E),
        ("request_inference_time_seconds", "RUNNING.", done.finish_s - done.scheduled_s, _E2E),
        ("request_prompt_tokens", "Prompt lengths.", done.prompt_tokens, _TOKENS),
        ("request_generation_tokens", "Output lengths.", done.output_tokens, _TOKENS),
        ("request_max_num_generation_tokens", "Output lengths.", done.output_tokens, _TOKENS),
        ("request_params_n", "Samples.", np.ones(len(at)), _SAMPLES),
        ("request_num_preemptions", "Preemptions.", done.preemptions, _PREEMPTIONS),
        (
            "request_prefill_kv_computed_tokens",
            "Prompt tokens computed.",
            done.prompt_tokens - done.cached_tokens,
            _TOKENS,
        ),
    ):
        yield _histogram(name, words, at, np.asarray(values, float)[ended], bounds, moments)


def copies(exported: Exported) -> Iterator[Family]:
    """Totals of copies between the device and its first tier over the run, for one rank; nothing
    without a tier.

    The times of individual copies are not recorded.
    """
    if not exported.scenario.get("tier"):
        return
    found = exported.run.summary.offloading
    host = None if found is None else found.tiers[0]
    for name, words, value in (
        ("kv_offload_store_bytes", "Bytes stored.", host and host.stored_bytes),
        ("kv_offload_store_time", "Seconds of stores.", host and host.store_busy_s),
        ("kv_offload_load_bytes", "Bytes loaded.", host and host.loaded_bytes),
        ("kv_offload_load_time", "Seconds of loads.", host and host.load_busy_s),
        ("kv_offload_allocation_failure", "Stores without room.", host and host.failed_stores),
    ):
        yield Family(name, "counter", words, np.asarray([float(value or 0)]))


def config_labels(exported: Exported) -> dict[str, str]:
    """The labels of `vllm:cache_config_info`, which describe the KV pool under vLLM's names."""
    options = exported.allocator
    pool = _pool(exported, int(options.get("block_size", 16)))
    utilization = exported.scenario["memory"].get("gpu_memory_utilization")
    labels = {
        "block_size": str(pool.block_size),
        "cache_dtype": str(exported.scenario["model"].get("kv_cache_dtype", "auto")),
        "enable_prefix_caching": str(bool(options.get("enable_prefix_caching", False))),
        "engine": "0",
        "gpu_memory_utilization": "None" if utilization is None else str(utilization),
        "num_gpu_blocks": str(pool.num_gpu_blocks),
        "kv_cache_size_tokens": str(pool.tokens),
    }
    if pool.max_concurrency is not None:
        labels["kv_cache_max_concurrency"] = repr(pool.max_concurrency)
    return labels


class _Pool(NamedTuple):
    block_size: int
    num_gpu_blocks: int
    tokens: int
    max_concurrency: float | None


def _pool(exported: Exported, block_size: int) -> _Pool:
    """The KV pool's blocks and size as the engine would report them for the model's cache plan.

    If the plan has another block size than the allocator, the allocator's blocks are reported.
    """
    plan = exported.scenario.get("provenance", {}).get("pool", {})
    if plan.get("block_size") == block_size and plan.get("engine_num_gpu_blocks"):
        return _Pool(
            plan["engine_block_size"],
            plan["engine_num_gpu_blocks"],
            plan["kv_cache_size_tokens"],
            plan["max_concurrency"],
        )
    blocks = exported.run.summary.memory.capacity_tokens // block_size
    longest = exported.scenario["model"].get("max_model_len")
    tokens = blocks * block_size
    return _Pool(block_size, blocks, tokens, tokens / longest if longest else None)


def _counter(name: str, words: str, at: Floats, amounts: NDArray[Any], moments: Floats) -> Family:
    sums = np.concatenate(([0.0], np.cumsum(amounts)))
    return Family(name, "counter", words, sums[np.searchsorted(at, moments, side="right")])


def _histogram(
    name: str, words: str, at: Floats, values: Floats, bounds: tuple[float, ...], moments: Floats
) -> Family:
    """A cumulative histogram over time. at has the ascending times at which the values were
    observed.
    """
    place = np.searchsorted(at, moments, side="right")
    rows = []
    for bound in (*bounds, np.inf):
        sums = np.concatenate(([0], np.cumsum(values <= bound)))
        rows.append(sums[place])
    total = np.concatenate(([0.0], np.cumsum(values)))[place]
    return Family(name, "histogram", words, np.array(rows), bounds, total)


def _inter_token(done: Answered, moments: Floats) -> Family:
    """Histogram of the gaps between tokens; all gaps of one request are equal to its mean."""
    tpot = done.tpot_s
    rows = np.zeros((len(_TPOT) + 1, len(moments)))
    total = np.zeros(len(moments))
    for begin, gaps, at in _spread(done, moments):
        rows[np.searchsorted(_TPOT, tpot[at]) :, begin:] += gaps
        total[begin:] += gaps * tpot[at]
    return Family("inter_token_latency_seconds", "histogram", "ITL.", rows, _TPOT, total)


def _spread(done: Answered, moments: Floats) -> Iterator[tuple[int, Floats, int]]:
    """For each request (i, counts, index): from moments[i] on it has its first token, and counts
    [times - i] further ones.
    """
    spans = np.maximum(done.finish_s - done.first_token_s, 1e-12)
    each = zip(done.first_token_s, spans, done.output_tokens, strict=True)
    for at, (first, span, tokens) in enumerate(each):
        begin = int(np.searchsorted(moments, first))
        share = np.clip((moments[begin:] - first) / span, 0.0, 1.0)
        yield begin, np.floor(share * (tokens - 1) + 1e-9), at


def _generated(done: Answered, moments: Floats) -> Floats:
    total = np.zeros(len(moments))
    for begin, after_first, _ in _spread(done, moments):
        total[begin:] += 1 + after_first
    return total
