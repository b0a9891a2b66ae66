"""The slow allocator of shared blocks is the model that the paged one is held against."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.auditor import Auditor
from support.cases import streams
from support.outcomes import unless_thrashing

from kvsim.engine.replica import Replica, assemble
from kvsim.memory.ledger import CLASSES
from kvsim.memory.options import AllocatorOptions, MemorySpec
from kvsim.memory.sharing import SharedBlock, SharingAllocator
from kvsim.request import Request
from kvsim.results.departures import Departures
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

# Those whose engine hands blocks out as vLLM 0.33 does.
SCHEDULERS: list[dict[str, Any]] = [
    {"kind": "continuous", "max_num_seqs": 8, "max_num_batched_tokens": 256},
    {"kind": "continuous", "policy": "priority", "max_num_batched_tokens": 64},
    {"kind": "static", "max_num_seqs": 6},
]


class Sharing(AllocatorOptions):
    """Options of blocks of 16 tokens. newest: the block freed last is evicted first."""

    newest: bool = False

    def build(self, memory: MemorySpec) -> SharingAllocator:
        return (NewestFirst if self.newest else SharingAllocator)(memory, 16)


class NewestFirst(SharingAllocator):
    def choose_victim(self, cached: Mapping[SharedBlock, None]) -> SharedBlock:
        return next(reversed(dict(cached)))


def served(
    made: Any, requests: list[Request], options: AllocatorOptions | None, **spec: Any
) -> Replica:
    """The requests under this allocator, or under the scenario's."""
    simulation = Simulation(Scenario.from_table(made), requests)
    own = simulation.replica_spec(simulation.scenario.allocator[0])
    own = replace(own, **spec) if options is None else replace(own, allocator=options, **spec)
    replica = assemble(own, simulation.stream, simulation.step_time, observer=Auditor())
    replica.run()
    return replica


def numbers(replica: Replica, leave_out: str = "") -> Any:
    """What a run comes to: times of requests, classes of the ledger, hits, preemptions."""
    recorder, scheduler = replica.recorder, replica.scheduler
    classes = {
        name: (time, step)
        for name, time, step in zip(CLASSES, recorder.time_sum, recorder.step_sum, strict=True)
        if name != leave_out
    }
    requests = [each.tolist() for each in Departures.of(recorder)]
    totals = scheduler.allocator.cache_totals()
    return requests, classes, totals, scheduler.num_preemptions, recorder.peak_used


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda table: str(table["kind"]))
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams(), tokens=st.sampled_from([1024, 1536, 4096]))
@unless_thrashing
def test_sharing_allocator_equals_the_paged_one_row_for_row(
    tables: Any, scheduler: dict[str, Any], requests: list[Request], tokens: int
) -> None:
    """Row for row, to the picosecond; vLLM's null block is metadata, which it has not."""
    made = tables(
        allocator=[{"kind": "paged", "block_size": 16}],
        scheduler=scheduler,
        memory={"kv_cache_tokens": tokens},
        model={"name": "opt-125m", "max_model_len": 1024},
    )
    paged = served(made, requests, None)
    block = 16 * paged.scheduler.allocator.token_bytes
    sharing = served(made, requests, Sharing(), capacity_bytes=_usable(paged, block))
    assert numbers(sharing, "metadata") == numbers(paged, "metadata")


def _usable(paged: Replica, block_bytes: int) -> int:
    """Bytes of the blocks that requests can have."""
    pool = paged.scheduler.allocator
    return pool.capacity_bytes - pool.usage(None, busy=False).metadata // block_bytes * block_bytes


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams(), tokens=st.sampled_from([1024, 1536]), newest=st.booleans())
def test_runs_of_k_steps_equal_single_steps(
    tables: Any, requests: list[Request], tokens: int, newest: bool
) -> None:
    made = tables(
        allocator=[{"kind": "paged"}],
        memory={"kv_cache_tokens": tokens},
        model={"name": "opt-125m", "max_model_len": 1024},
    )
    options = Sharing(newest=newest)
    single = numbers(served(made, requests, options, max_steps=1))
    assert numbers(served(made, requests, options)) == single
    assert numbers(served(made, requests, options, max_steps=3)) == single


def test_sharing_allocator_evicts_the_subclass_s_victim(tables: Any) -> None:
    """Two prompts of 15 full blocks and one more leave 2 of 32 blocks blank; a third prompt takes
    these and 14 with content: of the first prompt all but its first block, or of the second. The
    first prompt, which comes again, computes its last block anew.
    """
    runs = [((start << 40, 240),) for start in (1, 2, 3, 1)]
    requests = [
        Request(f"r{i}", i * 10**13, 240, 2, 2, prompt_runs=each) for i, each in enumerate(runs)
    ]
    made = tables(
        allocator=[{"kind": "paged"}],
        memory={"kv_cache_tokens": 512},
        model={"name": "opt-125m", "max_model_len": 512},
    )
    hits = []
    for newest in (False, True):
        replica = served(made, requests, Sharing(newest=newest))
        hits.append(replica.scheduler.allocator.cache_totals().hit_tokens)
    assert hits == [16, 14 * 16]
