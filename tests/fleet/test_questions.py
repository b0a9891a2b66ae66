"""Questions of users about fleets, whose answers follow from the routers' rules."""

from typing import Any

import pytest

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
def test_what_rotated_ties_cost_chats(router: str, shares: tuple[float, ...]) -> None:
    """vllm#52463: reuse of 4, 8, 12 and 20 turns over 4 ranks, against one rank for each chat."""
    for num_turns, share in zip((4, 8, 12, 20), shares, strict=True):
        cache = of(router, 4, chats(num_turns)).fleets[0].prefix_cache
        assert 100 * cache.hit_tokens / cache.query_tokens == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_router_replicas_see_their_own_share_of_an_imbalance(processes: int) -> None:
    """sglang#32195, smg#1621: one prefix, nobody leaves; each process moves requests away only once
    it has 65 of its own open, so that there are 65 for each process.
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


def test_waves_of_requests_by_own_counts_and_by_scraped_metrics() -> None:
    """llm-d-router#298: 800 at once over 8 replicas. Own counts give each 100; what
    is scraped every 50 ms is the same for all of them, so that chance deals them out.
    """
    wave = [Request(f"{n}", 0, 1000, 20) for n in range(800)]
    own = of("least-requests", 8, wave).fleets[0]
    assert own.imbalance.requests == 1.0
    scraped = of({"kind": "llm-d-epp", "prefix": 0.0}, 8, wave).fleets[0]
    assert scraped.imbalance.requests is not None
    assert scraped.imbalance.requests > 1.05


def test_a_herd_of_routers_overloads_the_best_worker() -> None:
    """dynamo#589: 16 routers with counters of their own all send their first to one replica, where
    one router spreads them over 16.
    """
    burst = [Request(f"{n}", 0, 100, 20) for n in range(16)]
    router = {"kind": "least-requests", "ties": "lowest"}
    one = of(router, 16, burst).fleets[0].imbalance.requests
    many = of(router, 16, burst, router_processes=16).fleets[0].imbalance.requests
    assert (one, many) == (1.0, 16.0)
