"""Invariants of every scheduler, checked for SGLang's with its hierarchical cache."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.auditor import Auditor
from support.cases import streams
from support.outcomes import STEP_TIME, outcome

import kvsim
from kvsim.engine.addresses.address_log import AddressLog
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

STORAGE = {
    "hicache_storage_backend": "file",
    "hicache_storage_backend_extra_config": {"prefetch_threshold": 16},
    "storage_read_gb_per_s": 0.5,
}
CACHES: list[dict[str, Any]] = [
    {},
    {"page_size": 16, "hicache_ratio": 0.6, "hicache_load_gb_per_s": 0.5},
    {"hicache_write_policy": "write_through_selective", "hicache_write_gb_per_s": 0.1},
    {"hicache_write_policy": "write_back", "hicache_ratio": 0.4},
    {"page_size": 16, "hicache_write_policy": "write_back", "hicache_size": 0.02},
    {"hicache_ratio": 0.7, **STORAGE},
    {**STORAGE, "hicache_ratio": 0.5, "hicache_storage_prefetch_policy": "wait_complete"},
    {**STORAGE, "hicache_ratio": 0.5, "hicache_storage_prefetch_policy": "best_effort"},
    {**STORAGE, "hicache_ratio": 30.0, "hicache_write_policy": "write_back"},
]
SCHEDULERS: list[dict[str, Any]] = [
    {"max_running_requests": 8, "schedule_conservativeness": 0.1},
    {"chunked_prefill_size": 64, "disable_overlap_schedule": True},
    {"chunked_prefill_size": 48, "enable_mixed_chunk": True},
    {"chunked_prefill_size": -1, "schedule_policy": "lpm"},
    {"max_running_requests": 3, "scheduler_recv_interval": 7},
]
OPT = {"name": "opt-125m", "max_model_len": 1024}
STIRRED = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def made(tables: Any, cache: dict[str, Any], scheduler: dict[str, Any], tokens: int) -> Any:
    return tables(
        allocator=[{"kind": "radix", "enable_hierarchical_cache": True, **cache}],
        scheduler={"kind": "sglang", **scheduler},
        memory={"kv_cache_tokens": tokens},
        model=OPT,
        step_time=STEP_TIME,
    )


def again(requests: list[Request]) -> list[Request]:
    """The requests, followed by requests with the same prompts."""
    later = max(request.arrival_ps for request in requests) + 10**12
    copies = (
        request._replace(
            id=f"again-{request.id}", arrival_ps=request.arrival_ps + later, after=None
        )
        for request in requests
    )
    return [*requests, *copies]


@pytest.mark.parametrize("cache", CACHES, ids=str)
@STIRRED
@given(
    requests=streams(),
    tokens=st.sampled_from([1024, 1500]),
    scheduler=st.sampled_from(SCHEDULERS),
)
def test_runs_of_k_steps_equal_single_steps(
    tables: Any, cache: Any, scheduler: Any, requests: list[Request], tokens: int
) -> None:
    table = made(tables, cache, scheduler, tokens)
    single = outcome(table, again(requests), 1)
    assert outcome(table, again(requests), None) == single
    assert outcome(table, again(requests), 3) == single


@pytest.mark.parametrize("cache", CACHES, ids=str)
@STIRRED
@given(requests=streams(), scheduler=st.sampled_from(SCHEDULERS))
def test_ledger_and_address_map_agree_at_every_event(
    tables: Any, cache: Any, scheduler: Any, requests: list[Request]
) -> None:
    simulation = Simulation(
        Scenario.from_table(made(tables, cache, scheduler, 1024)), again(requests)
    )
    options = simulation.scenario.allocator[0]
    simulation.run(options, "audited", observer=Auditor())
    simulation.run(options, "drawn", observer=AddressLog())


@pytest.mark.parametrize("policy", ["best_effort", "wait_complete", "timeout"])
@pytest.mark.parametrize("gap_ps", [0, 10**12])
def test_lookups_with_a_threshold_of_zero_delay_no_request(
    tables: Any, policy: str, gap_ps: int
) -> None:
    """With a threshold of 0, a lookup that finds no page succeeds, and nothing else wakes the
    engine.
    """
    extra = {"hicache_storage_backend_extra_config": {"prefetch_threshold": 0}}
    cache = {**STORAGE, **extra, "hicache_storage_prefetch_policy": policy}
    table = made(tables, cache, SCHEDULERS[0], 1024)
    requests = [Request(f"r{n}", n * gap_ps, 53, 40, 40) for n in range(2)]
    single = outcome(table, requests, 1)
    assert outcome(table, requests, None) == single
    assert outcome(table, requests[:1], None) == outcome(table, requests[:1], 1)


def test_host_memory_serves_content_evicted_from_the_device(tables: Any) -> None:
    """Users ask one after the other about documents that the device's cache cannot hold."""
    documents = [
        Request(
            id=f"{turn}-{user}",
            arrival_ps=(turn * 8 + user) * 10**12,
            prompt_tokens=300,
            output_tokens=2,
            prompt_runs=((user << 20, 300),),
        )
        for turn in range(2)
        for user in range(8)
    ]
    table = made(tables, {}, {}, 1024)
    run = kvsim.simulate({**table, "allocator": [{"kind": "radix"}]}, documents).runs[0].summary
    assert run.prefix_cache.hit_tokens == 0
    assert run.offloading is None
    tiered = (
        kvsim.simulate(
            {**table, "allocator": [{**table["allocator"][0], "hicache_ratio": 4.0}]}, documents
        )
        .runs[0]
        .summary
    )
    assert tiered.prefix_cache.hit_tokens == 8 * 299
    assert tiered.offloading is not None
    (host,) = tiered.offloading.tiers
    hits, token_bytes = tiered.prefix_cache.host_hit_tokens, run.memory.capacity_bytes // 1024
    assert hits is not None
    assert hits > 5 * 299
    assert host.loaded_bytes == hits * token_bytes
    assert host.stored_bytes >= 8 * 301 * token_bytes
    assert 0 < tiered.offloading.held_up_s <= host.load_busy_s


@pytest.mark.parametrize(
    ("cache", "fault"),
    [
        ({"hicache_ratio": 2.0}, "hicache_ratio changes nothing without enable_hierarchical_cache"),
        ({"enable_hierarchical_cache": True, "hicache_ratio": 2, "hicache_size": 1}, "at most one"),
        ({"enable_hierarchical_cache": True, "storage_latency_us": 3}, "hicache_storage_backend"),
        ({"enable_hierarchical_cache": True, "disable_radix_cache": True}, "radix cache"),
        ({"enable_hierarchical_cache": True, "scheduler": {"kind": "vllm-v0"}}, "only SGLang's"),
    ],
)
def test_hicache_options_without_effect_are_refused(tables: Any, cache: Any, fault: str) -> None:
    table = tables(allocator=[{"kind": "radix", **cache}], scheduler={"kind": "sglang"}, model=OPT)
    with pytest.raises(InputError, match=fault):
        Simulation(Scenario.from_table(table), [])


TWO_REQUESTS = {
    "kind": "synthetic",
    "num_requests": 2,
    "arrivals": {"kind": "at-once"},
    "prompt": {"kind": "fixed", "tokens": 30},
    "output": {"kind": "fixed", "tokens": 3},
}


def test_hicache_of_decode_replicas_without_a_radix_cache_is_refused(tables: Any) -> None:
    split = {"prefill": {"replicas": 1}, "decode": {"replicas": 1}}
    table = tables(
        allocator=[{"kind": "radix", "enable_hierarchical_cache": True}],
        scheduler={"kind": "sglang"},
        disaggregation=split,
        model=OPT,
        workload=TWO_REQUESTS,
    )
    with pytest.raises(
        InputError,
        match=r"extends their radix cache.*\[disaggregation.prefill.allocator\] alone",
    ):
        kvsim.simulate(table)
