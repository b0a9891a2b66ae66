"""All allocators, placements and schedulers, and small streams that exercise them."""

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from kvsim.engine.policies.victims import VICTIMS
from kvsim.engine.schedulers import SCHEDULERS as REGISTERED_SCHEDULERS
from kvsim.memory import ALLOCATORS
from kvsim.memory.arena import PLACEMENTS
from kvsim.plumbing.registry import Registry
from kvsim.request import Request

_ALLOCATORS: list[dict[str, Any]] = [
    {"kind": "paged", "block_size": 16},
    {"kind": "paged", "block_size": 16, "enable_prefix_caching": False},
    {"kind": "paged", "block_size": 1},
    {"kind": "paged", "block_size": 64, "watermark": 0.1},
    *({"kind": "max-buffer", "reserve": r} for r in ("exact", "pow2", "declared-max")),
    *({"kind": "doubling", "initial_tokens": 32, "placement": p} for p in PLACEMENTS),
    {"kind": "doubling", "initial_tokens": 16, "factor": 1.5, "allocation_latency_us": 50},
    {"kind": "concatenation"},
    {"kind": "paged", "block_size": 16, "host_cache_gib": 0.4},
    {"kind": "page-groups", "page_group_kib": 256},
    {"kind": "paged", "block_size": 16, "sharing": "copy-on-write"},
    {"kind": "radix"},
    {"kind": "radix", "page_size": 16},
    {"kind": "radix", "page_size": 4, "disable_radix_cache": True},
    {"kind": "cells"},
    {"kind": "cells", "kv_unified": False, "n_seq_max": 2},
    {"kind": "cells", "semantics": "march-2025", "n_ubatch": 64},
]
_SCHEDULERS: list[dict[str, Any]] = [
    {"kind": "continuous", "max_num_seqs": 8, "max_num_batched_tokens": 256},
    {"kind": "continuous", "max_num_seqs": 16, "async_scheduling": True},
    {"kind": "continuous", "policy": "priority", "max_num_batched_tokens": 64},
    {"kind": "continuous", "long_prefill_token_threshold": 40, "max_num_batched_tokens": 128},
    {"kind": "continuous", "max_num_seqs": 12, "max_num_batched_tokens": 8},
    {"kind": "continuous", "semantics": "vllm-0.11", "max_num_seqs": 8},
    {"kind": "continuous", "enable_chunked_prefill": False, "max_num_batched_tokens": 400},
    {"kind": "orca", "max_num_seqs": 8, "max_num_batched_tokens": 500},
    {"kind": "vllm-v0", "max_num_seqs": 8, "max_num_batched_tokens": 500},
    {"kind": "static", "max_num_seqs": 6},
    {"kind": "trt-llm", "max_num_seqs": 8, "max_num_batched_tokens": 500},
    {"kind": "trt-llm", "capacity_scheduler_policy": "max-utilization", "max_num_seqs": 8},
    {"kind": "continuous", "max_num_seqs": 8, "preemption_mode": "swap", "swap_latency_us": 20},
    {"kind": "vllm-v0", "max_num_seqs": 8, "preemption_mode": "swap", "swap_space_gib": 0.2},
    {"kind": "sglang", "max_running_requests": 8, "schedule_conservativeness": 0.1},
    {"kind": "sglang", "chunked_prefill_size": 64, "disable_overlap_schedule": True},
    {"kind": "sglang", "chunked_prefill_size": 48, "enable_mixed_chunk": True},
    {"kind": "sglang", "chunked_prefill_size": -1, "schedule_policy": "lpm"},
]


def _with_all(chosen: list[dict[str, Any]], registry: Registry[Any]) -> list[dict[str, Any]]:
    """The chosen settings, and every registered kind that is not among them as it is."""
    kinds = {table["kind"] for table in chosen}
    return [*chosen, *({"kind": kind} for kind in registry if kind not in kinds)]


ALLOCATOR_TABLES = _with_all(_ALLOCATORS, ALLOCATORS)
# llama-server drives cells and nothing else: tests/contracts/test_llama_server.py.
SCHEDULERS = [
    table
    for table in _with_all(_SCHEDULERS, REGISTERED_SCHEDULERS)
    if table["kind"] != "llama-server"
]
# Every victim rule under a scheduler that computes prompts in chunks, and one that does not.
VICTIM_SCHEDULERS: list[dict[str, Any]] = [
    {**scheduler, "victim": victim}
    for victim in VICTIMS
    for scheduler in (
        {"kind": "continuous", "max_num_seqs": 8, "max_num_batched_tokens": 64},
        {"kind": "trt-llm", "capacity_scheduler_policy": "max-utilization", "max_num_seqs": 8},
    )
]


def known_to(scheduler: dict[str, Any], allocator: dict[str, Any]) -> dict[str, Any]:
    """The allocator's settings that the scheduler's version supports."""
    unknown = {"watermark"} if scheduler.get("semantics") == "vllm-0.11" else set()
    return {key: value for key, value in allocator.items() if key not in unknown}


# Models whose layers do not all keep every token.
_FILES = Path(__file__).parent
# Windows of 128 tokens in one group, of 1,024 in six; states in blocks of 80 tokens, and
# of 16; windows of 64 in blocks of 32 tokens beside full attention in blocks of 16.
HYBRIDS: dict[str, dict[str, Any]] = {
    "gpt-oss-20b": {"name": "gpt-oss-20b"},
    "gemma-3-27b": {"name": "gemma-3-27b"},
    "jamba-v0.1": {"name": "jamba-v0.1"},
    "tiny": {"hf_config": str(_FILES / "tiny_hybrid.json")},
    "sizes": {"hf_config": str(_FILES / "tiny_sizes.json")},
    "chunks": {"hf_config": str(_FILES / "tiny_chunks.json")},
}


@st.composite
def streams(draw: st.DrawFn) -> list[Request]:
    """Bursts and gaps, shared prefixes, outputs other prompts name, followers, priorities."""
    requests: list[Request] = []
    now = 0
    for index in range(draw(st.integers(1, 14))):
        now += draw(st.sampled_from([0, 0, 10**9, 10**11, 5 * 10**11, 3 * 10**12]))
        prompt = draw(st.integers(1, 400))
        shared = draw(st.integers(0, prompt))
        runs: tuple[tuple[int, int], ...] | None = (
            (1 << 40, shared),
            (index << 20, prompt - shared),
        )
        named = draw(st.booleans())
        after = None
        if requests and draw(st.integers(0, 4)) == 0:
            before = requests[-1]
            after = before.id
            if before.prompt_runs is not None and before.output_start is not None:
                history = (*before.prompt_runs, (before.output_start, before.output_tokens))
                runs = (*history, (index << 20, prompt))
                prompt = sum(length for _, length in runs)
                named = True
        requests.append(
            Request(
                id=f"r{index}",
                arrival_ps=now,
                prompt_tokens=prompt,
                output_tokens=(output := draw(st.integers(1, 200))),
                max_tokens=output + draw(st.integers(0, 100)),
                priority=draw(st.integers(0, 2)),
                prompt_runs=runs if named else None,
                output_start=(1 << 50) + (index << 20) if named else None,
                after=after,
                think_ps=draw(st.sampled_from([0, 10**10, 10**12])),
            )
        )
    return requests
