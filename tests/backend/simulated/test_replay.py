import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.cache.checks import small_shape
from evidence.cache.recorder import StepRecorder, record_steps
from evidence.cache.simulated import (
    CONTIGUOUS,
    HOST_MEMORY,
    PAGED,
    PREEMPTING,
    SWAPPING,
    allocators,
    replay_run,
    requests,
    small_run,
)
from evidence.prove.replay import replay
from kvsim.backend.calibrate.held_out import held_out_steps
from kvsim.backend.simulated.copies import in_order
from kvsim.backend.step import Copy, HostSwap, TierCopy
from kvsim.backend.stores.buffers import BufferStore
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.tiers.host_slots import HostSlots
from kvsim.backend.transformer.decoder import Decoder
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

DECODER = Decoder(small_shape("float64"))
MORE = {
    "blocks of 17": {"kind": "paged", "block_size": 17},
    "whole maximum": {"kind": "max-buffer"},
    "in place": {"kind": "doubling", "initial_tokens": 4, "extend_in_place": True},
}


@pytest.mark.parametrize("name", [*allocators(), *MORE])
def test_simulated_allocators_drive_real_attention(name):
    found, _ = replay_run(small_run((allocators() | MORE)[name]), DECODER)
    assert found.rows > 300
    assert found.ok, found


def test_replayed_steps_contain_hits_swaps_and_forks():
    _, paged = replay_run(small_run(PAGED["paged"]), DECODER)
    hits = [prefix for step in paged.steps for prefix in step.prefixes.values() if prefix]
    seen, resumed = {}, 0
    for span in (span for step in paged.steps for span in step.spans):
        resumed += span.start < seen.get(span.id, 0)
        seen[span.id] = span.context
    assert hits
    assert resumed
    _, doubling = replay_run(small_run(CONTIGUOUS["doubling"]), DECODER)
    assert sum(len(step.moves) for step in doubling.steps) > 10


@pytest.mark.parametrize("name", PREEMPTING)
def test_swapped_kv_returns_unchanged(name):
    found, recorder = replay_run(small_run(PREEMPTING[name], scheduler=SWAPPING), DECODER)
    assert found.ok, found
    swaps = [move for step in recorder.steps for move in step.moves if isinstance(move, HostSwap)]
    scheduler = recorder.scheduler
    token_bytes = scheduler.allocator.token_bytes
    assert len(swaps) >= 4
    assert sum(swap.slots for swap in swaps) * token_bytes == scheduler.swapped_bytes
    # Nobody computes again what came back.
    done = {}
    for span in (span for step in recorder.steps for span in step.spans):
        assert span.start >= done.get(span.id, 0) - 1
        done[span.id] = span.context


def test_swapped_buffer_returns_in_another_buffer():
    simulation = small_run(CONTIGUOUS["doubling"], scheduler=SWAPPING)
    recorder = StepRecorder(DECODER.shape.vocab, "buffers")
    simulation.run(simulation.scenario.allocator[0], "", observer=recorder)
    assert any(isinstance(move, HostSwap) for step in recorder.steps for move in step.moves)
    store = BufferStore(DECODER.shape)
    assert replay(recorder.steps, DECODER, store).ok
    assert store.host.held_bytes == 0
    assert store.host.copied_bytes > 0


def test_replay_that_loses_swapped_kv_fails(monkeypatch):
    monkeypatch.setattr(PagedStore, "scatter", lambda *_: None)
    found, _ = replay_run(
        small_run(PAGED["paged without prefix cache"], scheduler=SWAPPING), DECODER
    )
    assert not found.ok


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    blocks_per_chunk=st.sampled_from([1, 2, 3]),
    max_num_seqs=st.sampled_from([4, 256]),
    policy=st.sampled_from(["lru", "arc"]),
    sync=st.booleans(),
)
def test_blocks_return_unchanged_from_host_memory(
    seed, blocks_per_chunk, max_num_seqs, policy, sync
):
    tier = HOST_MEMORY | {
        "blocks_per_chunk": blocks_per_chunk,
        "eviction_policy": policy,
        "sync_load_budget_bytes": 2**40 if sync else 0,
    }
    scheduler = {"max_num_seqs": max_num_seqs}
    run = small_run(PAGED["paged"], seed, scheduler=scheduler, tier=tier)
    found, recorder = replay_run(run, DECODER)
    assert found.ok, found
    copies = [move for step in recorder.steps for move in step.moves if isinstance(move, TierCopy)]
    assert any(copy.to_host for copy in copies)


def test_replay_that_loses_a_load_fails(monkeypatch):
    run = small_run(PAGED["paged"], tier=HOST_MEMORY)
    found, recorder = replay_run(run, DECODER)
    copies = [move for step in recorder.steps for move in step.moves if isinstance(move, TierCopy)]
    assert found.ok
    assert sum(not copy.to_host for copy in copies) > 5
    monkeypatch.setattr(HostSlots, "load", lambda self, slots, blocks: blocks.fill_(float("nan")))
    assert not replay_run(run, DECODER)[0].ok


def test_a_tier_that_no_store_has_is_refused():
    tier = {"kind": "vllm-simple-offloading", "kv_offloading_size": 1}
    with pytest.raises(InputError, match="to host memory alone"):
        replay_run(small_run(PAGED["paged"], tier=tier), DECODER)


def test_lmcache_chunks_return_unchanged():
    tier = {"kind": "lmcache", "max_local_cpu_size": 0.1875, "chunk_size": 8}
    found, _ = replay_run(small_run(PAGED["paged"], tier=tier), DECODER)
    assert found.ok, found


def test_full_host_memory_recomputes_further_preemptions():
    tight = SWAPPING | {"swap_space_gib": 0.02}
    found, recorder = replay_run(small_run(PAGED["paged"], scheduler=tight), DECODER)
    scheduler = recorder.scheduler
    assert found.ok, found
    assert scheduler.swapped_bytes
    assert scheduler.recomputed_tokens


@settings(max_examples=15, deadline=None)
@given(
    name=st.sampled_from(sorted(allocators() | MORE)),
    seed=st.integers(0, 10**6),
    chunked=st.booleans(),
    ahead=st.booleans(),
    swap=st.booleans(),
)
def test_replayed_caches_of_random_workloads_are_exact(name, seed, chunked, ahead, swap):
    table = (allocators() | MORE)[name]
    scheduler = {
        "enable_chunked_prefill": chunked,
        "max_num_batched_tokens": 32 if chunked else 64,
        "async_scheduling": ahead and table["kind"] == "paged",
        "preemption_mode": "swap" if swap else "recompute",
    }
    found, _ = replay_run(small_run(table, seed, 12, scheduler), DECODER)
    assert found.ok, found


def test_overlapping_copies_are_ordered_without_loss():
    # Each moves to where the next one stood; only one order is right.
    chain = [Copy(0, 8, 4), Copy(8, 16, 4), Copy(16, 24, 4)]
    for given_order in (chain, chain[::-1], [chain[1], chain[2], chain[0]]):
        assert in_order(list(given_order)) == (chain[2], chain[1], chain[0])


def test_allocator_without_a_torch_store_is_refused():
    with pytest.raises(InputError, match="no backend store keeps memory in this way"):
        replay_run(small_run({"kind": "concatenation"}), DECODER)
    leaping = small_run(PAGED["paged"]).scenario.model_copy(update={"max_steps": None})
    simulation = Simulation(
        Scenario.from_table(leaping.model_dump(exclude_none=True)), requests(0, 3)
    )
    for use in (
        lambda: record_steps(simulation, simulation.scenario.allocator[0], 50),
        lambda: held_out_steps(
            simulation, simulation.scenario.allocator[0], 3, step_tokens=9, pool_tokens=9
        ),
    ):
        with pytest.raises(InputError, match="max_steps"):
            use()


def test_held_out_steps_are_steps_of_the_run():
    simulation = small_run(PAGED["paged"], count=60)
    options = simulation.scenario.allocator[0]
    limits = {"step_tokens": 32, "pool_tokens": 180}
    drawn = held_out_steps(simulation, options, 9, **limits)
    assert drawn == held_out_steps(simulation, options, 9, **limits)
    assert drawn != held_out_steps(simulation, options, 9, seed=1, **limits)
    assert {plan.kind for plan in drawn} == {"decode", "prefill", "mixed"}
    assert len(drawn) == len(set(drawn)) <= 9
    recorder = record_steps(simulation, options, 50)
    every = {
        tuple(sorted((len(span.tokens), span.start) for span in step.spans))
        for step in recorder.steps
    }
    for plan in drawn:
        assert plan.step_tokens <= 32
        assert plan.cache_tokens <= 180
        spans = [*plan.chunks, *((1, context - 1) for context in plan.contexts)]
        assert tuple(sorted(spans)) in every
