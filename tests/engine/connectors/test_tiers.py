"""Tiers of a scenario: hits gained, time spent, and refusals."""

from typing import Any

import pytest
from support.scenarios import conversations, refuses, run

import kvsim
from kvsim.plumbing.units import PS_PER_S
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

HOST = {"kind": "vllm-offloading", "kv_offloading_size": 8.0}
SIMPLE = {"kind": "vllm-simple-offloading", "kv_offloading_size": 8.0}
LMCACHE = {"kind": "lmcache", "max_local_cpu_size": 1.0}
FILES = {"kind": "file-system"}


def tables(tier: list[dict[str, Any]] | None = None, tokens: int = 24_000) -> dict[str, Any]:
    """A scenario of conversations over a pool of `tokens` tokens."""
    found = conversations(tokens)
    found["scheduler"] = {"kind": "continuous", "max_num_batched_tokens": 4096}
    return found if tier is None else found | {"tier": tier}


SETS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "waits": ([HOST], {}),
    "outputs": ([HOST | {"offload_prompt_only": False}], {}),
    "arc": ([HOST | {"kv_offloading_size": 1.0, "eviction_policy": "arc"}], {}),
    "chunks": ([HOST | {"blocks_per_chunk": 4, "store_threshold": 2}], {"async_scheduling": True}),
    "at once": ([HOST | {"sync_load_budget_bytes": 1 << 30}], {}),
    "files": ([HOST | {"kv_offloading_size": 0.5}, FILES], {"async_scheduling": True}),
    "lmcache": ([LMCACHE], {}),
    "lmcache, outputs": ([LMCACHE | {"save_decode_cache": True}], {"async_scheduling": True}),
    "simple": ([SIMPLE], {"async_scheduling": True}),
    "lazy": ([SIMPLE | {"lazy_offload": True}], {}),
}
GEMMA = {"name": "gemma-3-27b", "max_model_len": 8192}
EAGLE = {"method": "eagle", "num_speculative_tokens": 3, "acceptance_rate": 0.7}


@pytest.mark.parametrize("name", SETS)
def test_k_steps_equal_single_steps_with_a_tier(name: str) -> None:
    tier, scheduler = SETS[name]
    table = tables(tier)
    table["scheduler"] = table["scheduler"] | scheduler
    check_single_steps(table)


def test_k_steps_equal_single_steps_while_a_tier_stores_in_each_step() -> None:
    """Content exceeds the host memory; requests are few and short, since each step stores."""
    room = {"lazy_offload": True, "kv_offloading_size": 0.25}
    small = {"num_sessions": 4, "turns": {"kind": "fixed", "tokens": 4}}
    check_single_steps(conversations(8000, **small) | {"tier": [SIMPLE | room]})


def check_single_steps(table: dict[str, Any]) -> None:
    together, singly = run(table), run(table | {"max_steps": 1})
    assert together.simulated() == singly.simulated()
    assert together.offloading is not None
    assert together.offloading.tiers[0].stored_bytes > 0


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("changes", [{"model": GEMMA}, {"speculative_config": EAGLE}], ids=str)
def test_k_steps_equal_single_steps_with_simple_offloading(
    changes: dict[str, Any], lazy: bool
) -> None:
    small = {"num_sessions": 6, "turns": {"kind": "fixed", "tokens": 4}}
    table = conversations(9000, **small) | {"tier": [SIMPLE | {"lazy_offload": lazy}]} | changes
    table["scheduler"] = {"kind": "continuous", "async_scheduling": not lazy}
    check_single_steps(table)


def test_windows_and_full_attention_share_host_memory() -> None:
    table = tables([HOST | {"kv_offloading_size": 40.0}], tokens=12_000)
    table["model"] = {"name": "gemma-3-27b", "max_model_len": 8192}
    together, singly = run(table), run(table | {"max_steps": 1})
    assert together.simulated() == singly.simulated()
    assert together.prefix_cache.host_hit_tokens
    assert together.offloading is not None
    one_table = run(table | {"allocator": {
        "kind": "paged", "disable_hybrid_kv_cache_manager": True,
    }})  # fmt: skip
    assert one_table.offloading is not None
    a_token = together.offloading.tiers[0].stored_bytes / together.prefix_cache.query_tokens
    assert (
        a_token < one_table.offloading.tiers[0].stored_bytes / one_table.prefix_cache.query_tokens
    )


@pytest.mark.parametrize(
    ("model", "cache_bytes"),
    [
        ("qwen3-next-80b-a3b", 300_000_000),
        ("jamba-v0.1", 90_000_000),
        ("gpt-oss-20b", 90_000_000),
        ("llama-4-scout", 300_000_000),
    ],
)
@pytest.mark.parametrize("behind", [[], [FILES]], ids=["host", "files"])
def test_states_and_local_attention_chunks_load_from_host_memory(
    model: str, cache_bytes: int, behind: list[dict[str, Any]]
) -> None:
    host = HOST | {"kv_offloading_size": 40.0, "offload_prompt_only": bool(behind)}
    table = tables([host, *behind])
    table["model"] = {"name": model, "max_model_len": 16384, "tensor_parallel_size": 8}
    table["memory"] = {"kv_cache_bytes": cache_bytes}
    together, singly = run(table), run(table | {"max_steps": 1})
    without = run({key: value for key, value in table.items() if key != "tier"})
    assert together.simulated() == singly.simulated()
    assert together.prefix_cache.host_hit_tokens
    assert together.prefix_cache.hit_tokens > without.prefix_cache.hit_tokens


def test_time_saved_by_a_tier_is_net_of_lookup_waits() -> None:
    """Each request is skipped while its files are looked up and read."""
    slow = run(tables([HOST | {"kv_offloading_size": 0.5}, FILES | {"read_gb_per_s": 0.2}]))
    without, offloading = run(tables()), slow.offloading
    assert offloading is not None
    assert offloading.saved_s is not None
    later_s = (slow.ttft_s.mean or 0) - (without.ttft_s.mean or 0)
    assert later_s > 0.1
    assert offloading.saved_s == pytest.approx(-48 * later_s, rel=0.1)
    assert offloading.loads_awaited == 48


def test_content_evicted_from_the_device_hits_in_host_memory() -> None:
    without, behind = run(tables()), run(tables([HOST]))
    offloading = behind.offloading
    assert without.offloading is None
    assert offloading is not None
    assert behind.prefix_cache.host_hit_tokens
    hits = behind.prefix_cache.hit_tokens
    assert hits > without.prefix_cache.hit_tokens
    assert hits <= behind.prefix_cache.query_tokens
    assert (behind.ttft_s.mean or 0) < (without.ttft_s.mean or 0)
    assert offloading.loads_awaited > 0
    loaded = behind.prefix_cache.host_hit_tokens * 131_072  # bytes of a token
    assert offloading.tiers[0].loaded_bytes == pytest.approx(loaded, rel=0.001)


def test_nothing_is_loaded_while_the_device_holds_everything() -> None:
    without, behind = run(tables(tokens=200_000)), run(tables([HOST], tokens=200_000))
    assert behind.offloading is not None
    assert behind.offloading.tiers[0].loaded_bytes == 0
    assert behind.offloading.tiers[0].stored_bytes > 0
    assert behind.ttft_s.as_json() == without.ttft_s.as_json()


def test_loading_over_a_slow_link_takes_longer_than_recomputing() -> None:
    slow = run(tables([HOST | {"load_gb_per_s": 0.1, "latency_us": 500.0}]))
    fast = run(tables([HOST]))
    assert (slow.ttft_s.mean or 0) > (run(tables()).ttft_s.mean or 0) > (fast.ttft_s.mean or 0)


def test_content_evicted_from_host_memory_hits_in_files() -> None:
    small = HOST | {"kv_offloading_size": 0.5}
    alone, behind = run(tables([small])), run(tables([small, FILES]))
    assert (behind.prefix_cache.host_hit_tokens or 0) > (alone.prefix_cache.host_hit_tokens or 0)
    assert behind.offloading is not None
    assert behind.offloading.tiers[1].loaded_bytes > 0


DRAFTS = {"method": "ngram", "num_speculative_tokens": 2, "acceptance_rate": 0.5}
PAIR = {"prefill": {"replicas": 1}, "decode": {"replicas": 1}}


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"tier": [FILES]}, "tier.0.kind"),
        ({"tier": [SIMPLE, FILES]}, "tier.1.kind"),
        ({"tier": [HOST, HOST]}, "tier.1.kind"),
        ({"tier": [HOST | {"store_threshold": 2}, FILES]}, "tier.0.store_threshold"),
        ({"tier": [HOST | {"kv_offloading_size": 1e-6}]}, "tier.0.kv_offloading_size"),
        ({"tier": [HOST], "allocator": [{"kind": "doubling"}]}, "allocator.kind"),
        ({"tier": [HOST], "allocator": [{"kind": "paged", "host_cache_gib": 1}]}, "allocator"),
        ({"tier": [HOST], "scheduler": {"kind": "orca"}}, "scheduler.kind"),
        ({"tier": [HOST, FILES], "speculative_config": DRAFTS}, "tier"),
        ({"tier": [SIMPLE], "disaggregation": PAIR}, "tier.0.kind"),
        ({"tier": [LMCACHE], "disaggregation": PAIR}, "tier.0.kind"),
        (
            {
                "tier": [HOST, FILES | {"shared": True}],
                "disaggregation": PAIR,
                "fleet": {"replicas": 2},
            },
            "tier.1.shared",
        ),
        ({"tier": [SIMPLE], "model": {"name": "mistral-7b-v0.1"}}, "tier.0.kind"),
        ({"tier": [HOST], "model": {"name": "falcon-mamba-7b"}}, "allocator.enable_prefix_caching"),
        (
            {"tier": [HOST], "model": {"name": "qwen3.5-4b"}}
            | {"allocator": {"kind": "paged", "prefix_match_unit": 16}},
            "allocator.prefix_match_unit",
        ),
        (
            {"tier": [HOST | {"sync_load_budget_bytes": 1}], "model": {"name": "gemma-3-27b"}},
            "tier.0.sync_load_budget_bytes",
        ),
        (
            {"tier": [HOST | {"blocks_per_chunk": 4}], "model": {"name": "gemma-3-27b"}}
            | {"allocator": {"kind": "paged", "prefix_cache_retention_interval": 96}},
            "allocator.prefix_cache_retention_interval",
        ),
    ],
)
def test_tier_combination_that_no_engine_has_is_a_one_line_error(
    changes: dict[str, Any], where: str
) -> None:
    refuses(tables() | changes, where)


RADIX = {
    "kind": "radix",
    "page_size": 64,
    "enable_hierarchical_cache": True,
    "hicache_ratio": 2.0,
}
STORAGE = {"hicache_storage_backend": "file", "hicache_ratio": 1.2}


def hierarchical(**keys: Any) -> dict[str, Any]:
    """The conversations under SGLang's hierarchical cache."""
    return tables(tokens=12_000) | {
        "allocator": [RADIX | keys],
        "scheduler": {"kind": "sglang"},
    }


@pytest.mark.parametrize(
    "table",
    [
        tables([HOST]),
        tables([HOST | {"sync_load_budget_bytes": 1 << 30}]),
        tables([HOST | {"kv_offloading_size": 0.5}, FILES]),
        tables([SIMPLE]),
        hierarchical(),
        hierarchical(**STORAGE),
    ],
    ids=["host", "at once", "files", "simple", "hicache", "storage"],
)
def test_hits_by_tier_and_times_of_requests_sum_to_those_of_the_summary(
    table: dict[str, Any],
) -> None:
    simulation = Simulation(Scenario.from_table(table))
    (options,), (label,) = simulation.scenario.allocator, simulation.labels
    found = simulation.run(options, label)
    offloading, requests = found.summary.offloading, found.table("requests")
    assert offloading is not None
    assert requests is not None
    host, *behind = (tier.hit_tokens for tier in offloading.tiers)
    assert host == requests["host_cached_tokens"].sum()
    assert sum(behind) == requests["storage_cached_tokens"].sum()  # type: ignore[arg-type]
    assert host + sum(behind) == found.summary.prefix_cache.host_hit_tokens  # type: ignore
    assert all(behind)
    both = requests["host_cached_tokens"] + requests["storage_cached_tokens"]
    assert both.sum()
    assert (both <= requests["cached_tokens"]).all()
    assert ((requests["recompute_ps"] > 0) >= (both > 0)).all()
    assert requests["recompute_ps"].sum() == round((offloading.recompute_s or 0) * 1e12)
    waited = (offloading.load_wait_s or 0) * offloading.loads_awaited
    assert requests["load_wait_ps"].sum() / 1e12 >= waited - 1e-9
    saved_s = (offloading.recompute_s or 0) - waited - offloading.held_up_s
    assert offloading.saved_s == pytest.approx(saved_s)


def test_only_runs_with_tiers_have_tier_columns() -> None:
    simulation = Simulation(Scenario.from_table(tables()))
    found = simulation.run(simulation.scenario.allocator[0], simulation.labels[0])
    requests = found.table("requests")
    assert requests is not None
    assert not {"host_cached_tokens", "load_wait_ps"} & set(requests)


@pytest.mark.parametrize("prompt", [1, 2, 16])
def test_last_prompt_token_in_a_tier_is_computed_and_not_a_hit(tables: Any, prompt: int) -> None:
    """The whole prompt is in the tier; its recomputed last token is not counted as saved."""
    made = tables(
        allocator=[{"kind": "paged", "block_size": 1}],
        memory={"kv_cache_tokens": 40},
        tier=[{"kind": "vllm-offloading", "kv_offloading_size": 0.1}],
    )
    own, other = ((1 << 30, prompt),), ((2 << 30, 36),)
    requests = [
        Request("a", 0, prompt, 2, prompt_runs=own),
        Request("b", PS_PER_S, 36, 2, prompt_runs=other),
        Request("c", 2 * PS_PER_S, prompt, 2, prompt_runs=own),
    ]
    (run,) = kvsim.simulate(made, requests).runs
    last = run.requests.set_index("id").loc["c"]
    assert last.cached_tokens == prompt - 1
    assert last.host_cached_tokens <= last.cached_tokens
    assert last.recompute_ps >= 0
    assert run.summary["prefix_cache"]["host_hit_tokens"] == last.host_cached_tokens
