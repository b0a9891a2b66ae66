"""What holds for every router that is registered, and what the policies say in small cases."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.fleet.load import Load
from kvsim.fleet.routers import ROUTERS
from kvsim.fleet.routers.options import FleetView
from kvsim.fleet.routers.router import RoutedRequest, Router
from kvsim.fleet.routers.several import SeveralRouters
from kvsim.fleet.views.content import ChainedBlocks, blocks_of, common_length, cut
from kvsim.fleet.views.text_tree import TextTree
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.request import TokenRuns

REPLICAS = 4


def router_of(kind: str, **options: object) -> Router:
    view = FleetView(REPLICAS, seed=7, characters=1.0)
    return ROUTERS.parse({"kind": kind, **options}, "fleet.router").build(view)


def request(name: str, *segments: tuple[int, int], session: str | None = None) -> RoutedRequest:
    content = tuple((segment << 20, length) for segment, length in segments)
    return RoutedRequest(name, sum(length for _, length in segments), content, session)


def drive(router: Router, seed: int, count: int = 120) -> list[int]:
    """Requests of a few prefixes come, get their first token and leave; the replicas chosen."""
    random, open_ids, chosen = Random(seed), [], []
    for number in range(count):
        now_ps = number * 10**10
        asked = request(
            f"r{number}",
            (random.randrange(6), random.randrange(20, 400)),
            (100 + number, random.randrange(1, 200)),
            session=f"s{number // 120}-{random.randrange(9)}",
        )
        decision = router.decide(asked, now_ps)
        assert decision.replica in router.alive
        router.sent(asked, decision.replica, now_ps)
        chosen.append(decision.replica)
        open_ids.append(asked.id)
        if random.random() < 0.6:
            router.prefilled(random.choice(open_ids), now_ps)
        while len(open_ids) > 12 or (open_ids and random.random() < 0.4):
            router.left(open_ids.pop(random.randrange(len(open_ids))), now_ps)
        if number % 7 == 0:
            loads = [Load(random.randrange(3), 2, random.random(), 900) for _ in router.open]
            router.report(loads, now_ps)
    for each in open_ids:
        router.left(each, count * 10**10)
    assert not any(router.open)
    return chosen


@pytest.mark.parametrize("kind", ROUTERS.own)
def test_router_with_the_same_seed_makes_the_same_choices(kind: str) -> None:
    assert drive(router_of(kind), 3) == drive(router_of(kind), 3)


@pytest.mark.parametrize("kind", ROUTERS.own)
def test_routers_skip_a_removed_replica_and_use_a_new_one(kind: str) -> None:
    router = router_of(kind)
    drive(router, 1)
    router.gone(1)
    assert 1 not in drive(router, 2)
    router.joined(REPLICAS)
    router.joined(1)
    assert len(router.open) == REPLICAS + 1
    assert {1, REPLICAS} <= set(drive(router, 4, 400))


@pytest.mark.parametrize("kind", ROUTERS.own)
def test_unknown_router_option_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match="speed"):
        router_of(kind, speed=2)


def test_power_of_two_with_one_replica_is_refused() -> None:
    with pytest.raises(InputError, match="two replicas"):
        ROUTERS.parse({"kind": "power-of-two"}, "fleet.router").build(FleetView(1))


def test_bucket_router_boundaries_equal_a_hand_count() -> None:
    """At first 4,096 characters are split into four ranges. Later the characters of the last 5 s
    set the ranges (bucket.rs): 100, 100, 200 and 400 are 200 for each range, so ranges end at 100,
    200 and 400.
    """
    router = router_of("bucket", balance_abs_threshold=10_000)
    asked = [request(f"b{n}", (n, length)) for n, length in enumerate((100, 100, 200, 400))]
    for each in asked:
        decision = router.decide(each, 0)
        assert (decision.replica, decision.why) == (0, "bucket")
        router.sent(each, decision.replica, 0)
    lengths = (100, 101, 1023, 1024, 3072, 9999)
    probes = [request(f"p{length}", (9, length)) for length in lengths]
    assert [router.decide(each, 4 * PS_PER_S).replica for each in probes] == [0, 0, 0, 1, 3, 3]
    assert [router.decide(each, 5 * PS_PER_S).replica for each in probes] == [0, 1, 3, 3, 3, 3]
    assert router.ends[:3] == [100, 200, 400]  # type: ignore[attr-defined]


def test_bucket_router_falls_back_to_the_least_busy_worker() -> None:
    """If the loads of two workers differ by more than 64 characters and a factor of 1.5, the least
    loaded worker gets the request.
    """
    router = router_of("bucket")
    first, second = request("a", (1, 60)), request("b", (2, 10))
    router.sent(first, 0, 0)
    assert router.decide(second, 0).why == "bucket"
    router.sent(second, 0, 0)
    assert (router.decide(first, 0).replica, router.decide(first, 0).why) == (1, "imbalance")
    late = 6 * PS_PER_S  # both have been forgotten once another has come
    router.sent(first, 1, late)
    assert router.decide(second, late).why == "bucket"


def test_llm_d_stays_with_a_warm_server_until_another_is_18_s_sooner() -> None:
    """18 s at 15,928 prompt tokens a second are 286,704 tokens in flight (rule of the filter's
    README).
    """
    for waiting, expected in (((), {1}), ((10_000,), {1}), ((300_000,), {0, 2, 3})):
        router = router_of("llm-d-sticky")
        warm = request("warm", (1, 9 * 64))
        router.sent(warm, 1, 0)
        router.prefilled(warm.id, 0)
        for number, tokens in enumerate(waiting):
            router.sent(request(f"o{number}", (50 + number, 4 * tokens)), 1, 0)
        decision = router.decide(request("new", (1, 9 * 64), (2, 64)), 0)
        assert {*decision.tied} == expected
        assert decision.why == ("affinity" if expected == {1} else "saturated")


def test_llm_d_counts_uncached_tokens_in_flight_until_the_first_token() -> None:
    router = router_of("llm-d-sticky")
    for replica, length in enumerate((400, 800, 4000, 4000)):
        router.sent(request(f"r{replica}", (10 + replica, length)), replica, 0)
    asked = request("new", (1, 320))
    decision = router.decide(asked, 0)  # prompt lengths are in characters, four per token
    assert decision.scores == (100 + 80, 200 + 80, 1080, 1080)
    assert (decision.replica, decision.why) == (0, "token-load")
    router.prefilled("r1", 0)
    assert router.decide(asked, 0).replica == 1


def test_production_stack_1035_weighs_the_cache_against_load() -> None:
    """argmax of matched / prompt - beta * (load - mean) / max(1, mean), by hand: replica 0 has the
    first 160 of 320 tokens and n open requests, the others none.
    """
    for beta, opened, expected in ((0.0, 40, 0), (1.0, 0, 0), (1.0, 8, 1), (0.1, 8, 0)):
        router = router_of("load-aware", beta=beta)
        asked = request("new", (1, 160), (2, 160))
        for number in range(opened):
            router.sent(request(f"o{number}", (50 + number, 16)), 0, 0)
        router.stored(0, router.names.of(asked.content)[:10], 0)  # type: ignore[attr-defined]
        decision = router.decide(asked, 0)
        mean = opened / REPLICAS
        load = [opened, 0, 0, 0]
        by_hand = [
            (0.5 if at == 0 else 0.0) - beta * (load[at] - mean) / max(1.0, mean)
            for at in range(REPLICAS)
        ]
        assert decision.scores == pytest.approx(by_hand)
        assert decision.replica == expected


def test_consistent_hash_moves_few_sessions_when_a_replica_joins() -> None:
    router = router_of("consistent-hash")
    names = [f"s{number}" for number in range(2000)]
    asked = [request(name, (1, 16), session=name) for name in names]
    before = [router.decide(each, 0).replica for each in asked]
    assert before == [router.decide(each, 0).replica for each in asked]
    assert min(Counter(before).values()) > 2000 / REPLICAS / 2
    router.joined(REPLICAS)
    after = [router.decide(each, 0).replica for each in asked]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {REPLICAS}
    assert len(moved) < 2 * 2000 / (REPLICAS + 1)


def test_vllm_without_reports_is_round_robin() -> None:
    """512 requests at once give each of 8 ranks 64 (vllm#36748, by the rules of 0.33)."""
    router = ROUTERS.parse({"kind": "vllm-dp"}, "r").build(FleetView(8))
    for number in range(512):
        asked = request(f"r{number}", (number, 1))
        router.sent(asked, router.decide(asked, 0).replica, 0)
    assert router.open == [64] * 8


@pytest.mark.parametrize(
    ("shared", "threshold", "expected", "within"),
    [(0.26, 64, (200, 200), 2), (0.32, 64, (400, 0), 0), (0.32, 4, (233, 167), 15)],
)
def test_cache_aware_router_splits_groups_as_in_sglang_21199(
    shared: float, threshold: int, expected: tuple[int, int], within: int
) -> None:
    """Prompts of one group on two workers, 36 open. If less than 0.3 of a prompt is shared, both
    workers get equally many; above, the first worker gets all. With threshold 4 the split depends
    on the order in which requests finish, here that of arrival.
    """
    view = FleetView(2, characters=1.0)
    table = {"kind": "cache-aware", "balance_abs_threshold": threshold}
    router = ROUTERS.parse(table, "r").build(view)
    opened: list[str] = []
    counts = [0, 0]
    for number in range(400):
        prefix = round(9800 * shared)
        asked = request(f"r{number}", (1, prefix), (10 + number, 9800 - prefix))
        replica = router.decide(asked, 0).replica
        router.sent(asked, replica, 0)
        counts[replica] += 1
        opened.append(asked.id)
        if len(opened) == 36:
            router.left(opened.pop(0), 0)
    assert counts == pytest.approx(expected, abs=within)


RUNS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=6).map(tuple)


def spelled(content: TokenRuns) -> list[int]:
    return [start + at for start, length in content for at in range(length)]


@given(RUNS, RUNS, st.integers(0, 60), st.integers(1, 7))
def test_contents_are_compared_and_cut_as_lists_of_ids(
    one: TokenRuns, other: TokenRuns, at: int, block: int
) -> None:
    left, right = spelled(one), spelled(other)
    same = 0
    while same < min(len(left), len(right)) and left[same] == right[same]:
        same += 1
    assert common_length(one, other) == same
    head, tail = cut(one, at)
    assert (spelled(head), spelled(tail)) == (left[:at], left[at:])
    blocks = [spelled(piece) for piece in blocks_of(one, block)]
    assert blocks == [left[i : i + block] for i in range(0, len(left) - block + 1, block)]
    names = ChainedBlocks(block)
    shared = sum(a == b for a, b in zip(names.of(one), names.of(other), strict=False))
    assert shared == same // block or min(len(left), len(right)) < (same // block + 1) * block


@given(st.lists(st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(0, 2))))
def test_sglang_router_tree_sizes_are_distinct_prefixes_by_worker(
    texts: list[tuple[list[int], int]],
) -> None:
    """Its sizes are the distinct prefixes sent to each worker; the match is the longest sent."""
    tree, prefixes = TextTree(), [set[tuple[int, ...]]() for _ in range(3)]
    for text, worker in texts:
        tree.insert(tuple((each, 1) for each in text), worker)
        prefixes[worker] |= {tuple(text[: at + 1]) for at in range(len(text))}
        assert tree.sizes.get(worker, 0) == len(prefixes[worker])
        everything = set().union(*prefixes)
        for probe in ([0, 1, 2, 0], text):
            held = [tuple(probe[: at + 1]) in everything for at in range(len(probe))]
            matched, owner = tree.match(tuple((each, 1) for each in probe))
            assert matched == sum(held)
            assert (owner == -1) == (matched == 0)
    tree.evict(3)
    assert all(size <= 3 for size in tree.sizes.values())
    for worker in range(3):
        tree.forget(worker)
    assert not any(tree.sizes.values())


@pytest.mark.parametrize("count", [1, 2, 4])
def test_several_routers_detect_imbalance_later_by_their_number(count: int) -> None:
    """smg#1621: each router process counts only its own requests, and acts on a difference of more
    than 64 of them.
    """
    options = ROUTERS.parse({"kind": "cache-aware"}, "router")
    router = SeveralRouters(options, FleetView(2), count)
    chosen = []
    for number in range(65 * count + 1):
        asked = request(f"r{number}", (1, 500))
        chosen.append(router.decide(asked, 0).replica)
        router.sent(asked, chosen[-1], 0)
    assert chosen == [0] * 65 * count + [1]


def test_vllm_front_ends_scan_from_different_ranks() -> None:
    options = ROUTERS.parse({"kind": "vllm-dp"}, "router")
    router = SeveralRouters(options, FleetView(4), 2)
    chosen = []
    for number in range(8):
        asked = request(f"r{number}", (1, 50))
        chosen.append(router.decide(asked, 0).replica)
        router.sent(asked, chosen[-1], 0)
    assert chosen == [0, 2, 1, 3, 2, 0, 3, 1]  # the second front end begins in the middle


def test_manual_router_pins_conversations_and_spreads_new_ones() -> None:
    router = router_of("manual", assignment="min_group")
    replica = {}
    for number in range(60):
        asked = request(f"r{number}", (1, 50), session=f"s{number % 12}")
        found = router.decide(asked, 0)
        router.sent(asked, found.replica, 0)
        assert replica.setdefault(asked.session, found.replica) == found.replica
        assert found.why == ("new session" if number < 12 else "session")
    sizes = [list(replica.values()).count(each) for each in set(replica.values())]
    assert max(sizes) - min(sizes) <= 1
    gone = replica["s0"]
    router.gone(gone)
    moved = router.decide(request("late", (1, 50), session="s0"), 0)
    assert moved.replica != gone
