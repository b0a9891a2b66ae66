"""Questions of users about fleets that the rules of the routers answer."""

from typing import Any

import pytest

from kvsim.fleet.load import Load
from kvsim.fleet.routers import ROUTERS
from kvsim.fleet.routers.options import FleetView
from kvsim.fleet.routers.router import RoutedRequest
from kvsim.fleet.routers.several import SeveralRouters
from kvsim.request import Request
from kvsim.results.result import Result
from kvsim.simulation import simulate

TABLE: dict[str, Any] = {
    "model": {"name": "llama-3.1-8b"},
    "device": {"name": "h200"},
    "memory": {"kv_cache_tokens": 4_000_000},
    "allocator": [{"kind": "paged"}],
    "step_time": {"kind": "linear", "base_us": 1000, "prefill_token_us": 1},
}
PS_PER_S = 10**12


def chats(num_turns: int, num_chats: int = 6, tokens: int = 400) -> list[Request]:
    """One chat at a time, and one turn at a time: each adds as many tokens as the one before."""
    found: list[Request] = []
    for chat in range(num_chats):
        for turn in range(1, num_turns + 1):
            found.append(
                Request(
                    f"{chat}-{turn}", 0, turn * tokens, 1,
                    prompt_runs=((chat << 20, turn * tokens),), session=f"chat {chat}",
                    after=found[-1].id if found else None, think_ps=PS_PER_S,
                )
            )  # fmt: skip
    return found


def of(router: Any, replicas: int, requests: list[Request], **fleet: Any) -> Result:
    table = {**TABLE, "fleet": {"replicas": replicas, "router": router, **fleet}}
    return simulate({**table, "scheduler": {"max_num_seqs": 128}}, requests)


@pytest.mark.parametrize(
    ("router", "shares"),
    [("vllm-dp", (0.0, 27.8, 46.2, 64.8)), ("consistent-hash", (60.0, 77.8, 84.6, 90.5))],
)
def test_rotating_ties_lower_prefix_reuse_of_chats(router: str, shares: tuple[float, ...]) -> None:
    """vllm#52463: prefix reuse of chats of 4, 8, 12 and 20 turns over 4 ranks, compared with chats
    that stay on one rank.
    """
    for num_turns, share in zip((4, 8, 12, 20), shares, strict=True):
        cache = of(router, 4, chats(num_turns)).fleets[0].prefix_cache
        assert 100 * cache.hit_tokens / cache.query_tokens == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_each_router_replica_sees_only_its_own_requests(processes: int) -> None:
    """sglang#32195, smg#1621: all requests share a prefix, and none finishes. A router process
    detects imbalance when it has 65 open requests of its own, so all together have 65 for each
    process.
    """
    options = ROUTERS.parse({"kind": "cache-aware"}, "router")
    view = FleetView(2, characters=1.0)
    router = options.build(view) if processes == 1 else SeveralRouters(options, view, processes)
    before = 0
    while True:
        asked = RoutedRequest(f"r{before}", 1000, ((0, 990), ((before + 1) << 20, 10)))
        decision = router.decide(asked, 0)
        if decision.why == "imbalance":
            break
        router.sent(asked, decision.replica, 0)
        before += 1
    assert before == 65 * processes


def test_bursts_are_spread_by_own_counts_but_not_by_scraped_metrics() -> None:
    """llm-d-router#298: 800 requests at once over 8 replicas. A router with its own counts sends
    100 to each. Metrics scraped every 50 ms are equal for all replicas, so the choice is random.
    """
    wave = [Request(f"{n}", 0, 1000, 20) for n in range(800)]
    own = of("least-requests", 8, wave).fleets[0]
    assert own.imbalance.requests == 1.0
    scraped = of({"kind": "llm-d-epp", "prefix": 0.0}, 8, wave).fleets[0]
    assert scraped.imbalance.requests is not None
    assert scraped.imbalance.requests > 1.05


def test_many_router_processes_overload_the_best_worker() -> None:
    """dynamo#589: 16 router processes, each with its own counts, all send their first request to
    one replica. One process would spread the requests over 16.
    """
    burst = [Request(f"{n}", 0, 100, 20) for n in range(16)]
    router = {"kind": "least-requests", "ties": "lowest"}
    one = of(router, 16, burst).fleets[0].imbalance.requests
    many = of(router, 16, burst, router_processes=16).fleets[0].imbalance.requests
    assert (one, many) == (1.0, 16.0)


def test_common_prefix_stays_on_one_pod_until_it_queues_and_fills() -> None:
    """llm-d-router#669, #2515: with weights 2, 2 and 3 the pod with the whole prefix is 3 ahead. It
    loses only if it has the longest queue and its pool is fuller by more than a half.
    """
    options = ROUTERS.parse({"kind": "llm-d-epp", "ties": "lowest"}, "router")
    router = options.build(FleetView(4, characters=1.0))
    content = ((0, 640),)
    router.sent(RoutedRequest("first", 640, content), 2, 0)
    moved = {}
    for waiting in (0, 5):
        for usage in (0.4, 0.49, 0.51, 0.95):
            loads = [Load(), Load(0, 3, 0.2), Load(waiting, 8, usage), Load(1, 3, 0.0)]
            router.report(loads, 0)
            chosen = router.decide(RoutedRequest("next", 640, content), 0).replica
            moved[waiting, usage] = chosen != 2
    assert [case for case, away in moved.items() if away] == [(5, 0.51), (5, 0.95)]


def test_prefix_common_to_all_requests_keeps_one_pod_busy_others_idle() -> None:
    """llm-d-router#669 over time: one pod gets all, also of a wave that it queues, since its pool
    is not half full.
    """
    requests = [
        Request(f"{n}", n * PS_PER_S // 500, 1000, 20, prompt_runs=((0, 960), ((n + 1) << 20, 40)))
        for n in range(300)
    ]
    fleet = of("llm-d-epp", 4, requests).fleets[0]
    assert fleet.imbalance.requests == 4.0
    assert fleet.waiting_mean > 0
    without = of({"kind": "llm-d-epp", "prefix": 0.0}, 4, requests).fleets[0]
    assert without.imbalance.requests is not None
    assert without.imbalance.requests < 2.0
    assert (without.ttft_s.mean or 0) < (fleet.ttft_s.mean or 0)
