"""Tiers that all replicas of a fleet share: what one has written, the others find."""

from typing import Any

import pytest

from kvsim.engine.connectors.lane import Lane
from kvsim.engine.connectors.offloading.chunk import ChunkContent, HostChunk
from kvsim.engine.connectors.offloading.disk import Disk
from kvsim.engine.connectors.offloading.folder import Folder
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.request import Request, Stream
from kvsim.results.result import Result
from kvsim.scenario import Scenario
from kvsim.sequence import Sequence
from kvsim.simulation import Simulation

HOST = {"kind": "vllm-offloading", "kv_offloading_size": 0.5}
FILES = {"kind": "file-system"}
SHARED = {"kind": "file-system", "shared": True}
TREE = {
    "kind": "radix",
    "page_size": 16,
    "enable_hierarchical_cache": True,
    "hicache_ratio": 1.0,
    "hicache_storage_backend": "file",
}
SHARED_TREE = TREE | {"hicache_storage_shared": True}
PROMPT, CHUNK = 1600, 16


def tables(tier: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """Eight conversations over two replicas; each device holds two of them."""
    return {
        "seed": 3,
        "model": {"name": "llama-3.1-8b", "max_model_len": 8192},
        "device": {"name": "h100-80gb"},
        "memory": {"kv_cache_tokens": 9_000},
        "allocator": "paged",
        "fleet": {"replicas": 2},
        "tier": tier,
        "workload": {
            "kind": "sessions",
            "num_sessions": 6,
            "max_context": "max_model_len",
            "arrivals": {"kind": "poisson", "rate_per_s": 2.0},
            "turns": {"kind": "fixed", "tokens": 4},
            "prompt": {"kind": "uniform", "min_tokens": 500, "max_tokens": 1500},
            "output": {"kind": "fixed", "tokens": 40},
            "think": {"kind": "exponential", "mean_s": 2.0},
        },
        **changes,
    }


def tree(allocator: dict[str, Any], **changes: Any) -> dict[str, Any]:
    found = tables([], allocator=allocator, scheduler="sglang", **changes)
    del found["tier"]
    return found


def served(table: dict[str, Any], requests: Stream | None = None) -> Result:
    return Simulation(Scenario.from_table(table), requests).result()


def numbers(result: Result) -> list[dict[str, Any]]:
    return [run.summary.simulated() for run in result.runs]


def hit_tokens(result: Result) -> int:
    return sum(run.summary.prefix_cache.hit_tokens for run in result.runs)


SETS = {
    "files": tables([HOST, SHARED]),
    "slow link": tables([HOST, SHARED | {"link_gb_per_s": 4.0}]),
    "routed by load": tables(
        [HOST, SHARED], fleet={"replicas": 3, "router": {"kind": "least-requests"}}
    ),
    "tree": tree(SHARED_TREE),
}


@pytest.mark.parametrize("name", SETS)
def test_shared_tiers_give_equal_numbers_in_runs_of_steps_and_single_steps(name: str) -> None:
    table = SETS[name]
    assert numbers(served(table)) == numbers(served(table | {"max_steps": 1}))


def test_a_prompt_that_one_replica_computed_is_loaded_by_the_other() -> None:
    runs = ((0, PROMPT),)
    stream = Stream.of(
        Request(str(at), at * 60 * PS_PER_S, PROMPT, 4, prompt_runs=runs) for at in range(2)
    )
    for table, found in (
        (tables([HOST, FILES]), 0),
        (tables([HOST, SHARED]), PROMPT - 1),  # the last token is computed again
        (tree(TREE), 0),
        (tree(SHARED_TREE), (PROMPT - 1) // CHUNK * CHUNK),
    ):
        result = served(table, stream)
        assert [run.summary.requests.finished for run in result.runs] == [1, 1]
        assert hit_tokens(result) == found


@pytest.mark.parametrize(
    ("own", "shared"), [(tables([HOST, FILES]), tables([HOST, SHARED])), (tree(TREE), SETS["tree"])]
)
def test_shared_tier_hits_more_and_equals_a_private_one_for_one_replica(
    own: dict[str, Any], shared: dict[str, Any]
) -> None:
    assert hit_tokens(served(shared)) > 1.1 * hit_tokens(served(own))
    one = {"fleet": {"replicas": 1}}
    assert numbers(served(shared | one)) == numbers(served(own | one))


def test_group_of_replicas_may_replace_the_tiers_of_the_fleet() -> None:
    groups = {"group": [{"replicas": 1}, {"replicas": 1, "tier": []}]}
    with_tier, without = served(tables([HOST], fleet=groups)).runs
    assert with_tier.summary.offloading is not None
    assert without.summary.offloading is None


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (tables([HOST, SHARED], fleet=None), "tier.1.shared: one replica shares its tiers with no"),
        (tree(SHARED_TREE, fleet=None), "hicache_storage_shared: one replica shares its tiers"),
        (
            tables([HOST, SHARED], fleet={"replicas": 2, "cells": 2}),
            "fleet.cells: replicas of different cells share no tier",
        ),
        (
            tables(
                [HOST, SHARED],
                fleet={
                    "group": [{}, {"tier": [HOST | {"blocks_per_chunk": 4}, SHARED]}],
                },
            ),
            "got chunks of 64 tokens and 8,388,608 bytes; limit chunks of 16 tokens",
        ),
        (
            tree(
                SHARED_TREE, fleet={"group": [{}, {"allocator": SHARED_TREE | {"page_size": 64}}]}
            ),
            "got pages of 64 tokens and 8,388,608 bytes; limit pages of 16 tokens",
        ),
    ],
)
def test_tiers_that_cannot_be_shared_are_refused(table: dict[str, Any], says: str) -> None:
    if table["fleet"] is None:
        del table["fleet"]
    with pytest.raises(InputError) as error:
        served(table)
    assert says in str(error.value)


# --- two engines over one folder ------------------------------------------------------------------

CHUNK_BYTES, THREAD_PS, LINK_PS = 1000, 8, 5


def disk(folder: Folder) -> Disk:
    """One thread for reads and one for writes, eight ps a chunk."""
    lane = Lane(0, CHUNK_BYTES * PS_PER_S // THREAD_PS)
    return Disk(lane, lane, CHUNK_BYTES, 1, 1, 1, folder)


def chunks(*keys: int) -> list[HostChunk]:
    return [HostChunk(ChunkContent(key, key, 0), key + 1) for key in keys]


def seq(name: str) -> Sequence:
    return Sequence(Request(name, 0, 10, 1), 0)


def test_transfers_of_two_engines_are_served_one_after_the_other() -> None:
    folder = Folder(None, CHUNK_BYTES * PS_PER_S // LINK_PS)
    first, second = disk(folder), disk(folder)
    first.submit(seq("a"), chunks(1, 2, 3), 0, read=False)  # the link until 15, the thread until 24
    second.submit(seq("b"), chunks(4, 5, 6, 7), 1, read=False)  # the link until 35, the thread 33
    second.submit(seq("c"), chunks(8), 2, read=True)  # reads have the link's other direction
    assert [len(each.reports(10)) for each in (first, second)] == [0, 1]
    assert [job.seq.id for job in second.reports(34)] == []
    assert [job.seq.id for job in first.reports(34)] == ["a"]
    assert [job.seq.id for job in second.reports(35)] == ["b"]
    assert folder.num_files == 7


def test_poll_by_one_engine_ends_the_transfers_of_all_in_order() -> None:
    folder = Folder(None, CHUNK_BYTES * PS_PER_S // LINK_PS)
    first, second = disk(folder), disk(folder)
    first.submit(seq("a"), chunks(1), 0, read=False)
    first.submit(seq("b"), chunks(2), 0, read=False)  # by the thread that reads, until 10
    first.submit(seq("c"), chunks(3), 0, read=False)  # begins at 8: the link is free from 10 to 15
    second.submit(seq("d"), chunks(4), 12, read=False)  # the link from 15 to 20
    assert [job.seq.id for job in second.reports(19)] == []
    assert [job.seq.id for job in second.reports(20)] == ["d"]
    assert [job.end_ps for job in first.reports(20)] == [8, 10, 16]


def test_files_that_a_failing_engine_is_writing_are_lost() -> None:
    folder = Folder()
    dying, other = disk(folder), disk(folder)
    dying.submit(seq("a"), chunks(1, 2), 0, read=False)
    other.submit(seq("b"), chunks(3), 0, read=False)
    dying.close(THREAD_PS)
    assert [folder.has(key, 100) for key in (1, 2, 3)] == [True, False, True]
    assert len(other.reports(100)) == 1
    assert not dying.reports(100)


def test_shared_files_remain_after_the_writing_replica_fails() -> None:
    """The second replica serves all after the first has died, and finds what that has written."""
    runs = ((0, PROMPT),)
    stream = Stream.of(
        Request(str(at), at * 60 * PS_PER_S, PROMPT, 4, prompt_runs=runs) for at in range(2)
    )
    fleet = {"replicas": 2, "failure": [{"at_s": 30.0, "replica": 0}]}
    for table in tables([HOST, SHARED], fleet=fleet), tree(SHARED_TREE, fleet=fleet):
        died, alive = served(table, stream).runs
        assert died.summary.prefix_cache.hit_tokens == 0
        assert alive.summary.prefix_cache.hit_tokens >= PROMPT - CHUNK
