"""Deployments of prefill and decode replicas with a router before them. A fleet of one deployment
equals it alone, several share the requests, and routers read the loads of both sides.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cases import streams

import kvsim
from kvsim.fleet.routers import ROUTERS
from kvsim.plumbing.units import PS_PER_MS
from kvsim.report.comparison import compare_results
from kvsim.report.words import paragraphs
from kvsim.request import Request
from kvsim.results import store

ENGINES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "vllm": ({"kind": "paged", "block_size": 16}, {"kind": "continuous", "max_num_seqs": 8}),
    "sglang": ({"kind": "radix", "page_size": 16}, {"kind": "sglang", "chunked_prefill_size": 128}),
}


def made(tables: Any, engine: str = "vllm", **more: Any) -> Any:
    allocator, scheduler = ENGINES[engine]
    apart = {"link_gb_per_s": 2.0, "prefill": {"replicas": 2}, **more.pop("apart", {})}
    return tables(
        allocator=[allocator],
        scheduler=scheduler,
        memory={"kv_cache_tokens": 4096},
        disaggregation=apart,
        **more,
    )


def some(count: int) -> list[Request]:
    return [Request(f"r{i}", i * 9 * PS_PER_MS, 200 + 3 * i, 20 + i % 7) for i in range(count)]


@pytest.mark.parametrize("engine", ENGINES)
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_fleet_of_one_pd_deployment_equals_it_alone(tables: Any, engine: str, data: Any) -> None:
    requests = data.draw(streams())
    kind = data.draw(st.sampled_from(["round-robin", "least-requests", "dynamo-kv"]))
    apart = {"router": {"kind": kind}}
    alone = kvsim.simulate(made(tables, engine, apart=apart), requests)
    for steps in (None, 1):
        table = made(tables, engine, apart=apart, fleet={"replicas": 1})
        one = kvsim.simulate({**table, "max_steps": steps} if steps else table, requests)
        for mine, theirs in zip(one.runs, alone.runs, strict=True):
            assert mine.summary.simulated() == theirs.summary.simulated()
        fleet, summary = one.fleets[0].simulated(), alone.runs[0].summary.simulated()
        assert {key: fleet[key] for key in summary} == summary


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ROUTERS.own)
def test_every_router_routes_among_and_within_deployments(
    tables: Any, engine: str, kind: str
) -> None:
    router = {"router": {"kind": kind}}
    both = {**router, "prefill": {"replicas": 2}, "decode": {"replicas": 2}}
    found = kvsim.simulate(
        made(tables, engine, apart=both, fleet={"replicas": 2, **router}), some(40)
    )
    fleet = found.fleets[0]
    assert [run.label.partition(" #")[2] for run in found.runs] == [
        "0", "0: prefill", "1", "1: prefill",
    ]  # fmt: skip
    assert fleet.requests.finished == 40
    assert fleet.gpu_hours == pytest.approx(8 * fleet.makespan_s / 3600)
    parts = [run.summary.transfers for run in found.runs[::2]]
    assert fleet.transfers is not None
    assert fleet.transfers.num_bytes == sum(each.num_bytes for each in parts if each is not None)
    assert fleet.transfers.prefill_replicas == 4
    assert "transfers moved" in " ".join(paragraphs(found))


def test_load_router_over_deployments_counts_prompts_in_prefill(tables: Any) -> None:
    """Round robin sends two of four short prompts to the deployment with the long one; vLLM's
    balancer sends none there.
    """
    requests = [Request("long", 0, 1500, 2)]
    requests += [Request(f"r{i}", (150 + 150 * i) * PS_PER_MS, 40, 2) for i in range(4)]
    step = {
        "kind": "linear",
        "base_us": 500,
        "prefill_token_us": 600,
        "decode_seq_us": 1,
        "context_token_ns": 0,
    }
    firsts = {}
    for kind in ("round-robin", "vllm-dp"):
        made_of = made(
            tables,
            apart={"prefill": {"replicas": 1}},
            step_time=step,
            fleet={"replicas": 2, "router": {"kind": kind}},
        )
        found = kvsim.simulate(made_of, requests)
        firsts[kind] = [run.summary.requests.submitted for run in found.runs[::2]]
    assert firsts == {"round-robin": [3, 2], "vllm-dp": [1, 4]}


def test_disaggregated_fleet_is_compared_with_a_fleet_without(tables: Any, tmp_path: Path) -> None:
    whole = made(tables, fleet={"replicas": 2})
    del whole["disaggregation"]
    summaries = []
    for name, table in (("both", whole), ("split", made(tables))):
        store.write(tmp_path / name, kvsim.simulate(table, some(20)), "")
        summaries.append(store.read_summary(tmp_path / name))
    sides = compare_results(summaries).sides
    assert [side.label for side in sides] == ["paged", "paged: prefill"]  # and no single replica
    (finished,) = (line for line in sides[0].lines if line.measure.title == "Requests finished")
    assert finished.values == (20, 20)


def test_group_options_apply_to_prefill_and_decode_replicas(tables: Any) -> None:
    groups = [{"replicas": 1}, {"replicas": 1, "memory": {"kv_cache_tokens": 8192}}]
    found = kvsim.simulate(made(tables, fleet={"group": groups}), some(20))
    sizes = [run.summary.memory.capacity_tokens for run in found.runs]
    assert sizes == [4096, 8192, 8192, 16384]  # two prefill replicas each


@pytest.mark.parametrize("engine", ENGINES)
def test_one_token_outputs_finish_on_the_prefill_replica_of_a_fleet(
    tables: Any, engine: str
) -> None:
    """No step runs on a decode replica; the row of the deployment has their rate."""
    requests = [Request(f"r{at}", at * 9 * PS_PER_MS, 300, 1) for at in range(12)]
    (run,) = kvsim.simulate(made(tables, engine), requests).runs[:1]
    last_ps = int(run.requests["finish_ps"].max())
    assert run.summary.makespan_s == pytest.approx(last_ps / 1e12)
    assert run.summary.requests_per_s == pytest.approx(12 / (last_ps / 1e12))
    assert run.summary.output_tokens_per_s == run.summary.requests_per_s
