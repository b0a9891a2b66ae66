"""The address map equals the allocator's own tables, for every allocator at every sample."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from support.cases import ALLOCATOR_TABLES, SCHEDULERS, streams
from support.outcomes import unless_thrashing
from support.reasons import cached_blocks

from kvsim.engine.addresses.address_log import AddressLog, InBuffers
from kvsim.engine.addresses.block_log import InBlocks
from kvsim.engine.addresses.cell_log import InCells
from kvsim.engine.addresses.page_log import InPages
from kvsim.request import Request
from kvsim.results import addresses
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

BASE: dict[str, Any] = {
    "model": {"name": "llama-3-8b", "max_model_len": 2048},
    "device": {"name": "a100-80gb"},
    "memory": {"kv_cache_tokens": 3000},
}
HYBRID = {**BASE, "model": {"name": "gemma-2-9b", "max_model_len": 2048}}


def has_places(table: dict[str, Any]) -> bool:
    """Whether this allocator's memory has addresses: pages of a pool, or ranges of an arena."""
    simulation = Simulation(Scenario.from_table({**BASE, "allocator": [table]}), [])
    spec = simulation.replica_spec(simulation.scenario.allocator[0])
    allocator = spec.build().allocator
    return isinstance(allocator, InBlocks | InCells | InPages) or hasattr(allocator, "arena")


class Witness(AddressLog):
    """Records the allocator's own tables at each sample of the address log."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[int, set[tuple[int, str]]] = {}  # at each moment, as it was last
        self.counted: dict[int, dict[str, int]] = {}  # the same of who counts pages

    def _sample(self, scheduler: Any, now_ps: int) -> None:
        super()._sample(scheduler, now_ps)
        allocator = scheduler.allocator
        if isinstance(allocator, InBlocks):
            size, pool = allocator.block_bytes, allocator.pool
            held = {block for seq in scheduler.running for block in allocator.blocks_of(seq)}
            kept = set(cached_blocks(pool))
            found = {((block - 1) * size, "held") for block in held}
            found |= {((block - 1) * size, "cached") for block in kept}
        elif isinstance(allocator, InCells):
            size, cells = allocator.plan.token_bytes, allocator.plan.cells
            running = set(allocator.numbers.values())
            found = {
                ((at * cells + cell) * size, "held" if running & set(seqs) else "cached")
                for at, field in enumerate(allocator.cells.caches[0].fields)
                for cell, seqs in enumerate(field.owners)
                if seqs
            }
        elif isinstance(allocator, InBuffers):
            found = {(address, "held") for address, _ in allocator.arena.live()}
        elif isinstance(allocator, InPages):
            self.counted[now_ps] = counted(allocator)
            return
        else:  # its slots have no places of their own to be drawn
            found = set()
        self.said[now_ps] = found


def counted(allocator: Any) -> dict[str, int]:
    """Bytes that each live sequence holds alone, by id; of the radix tree, held and cached."""
    size, tree = allocator.token_bytes, allocator.tree
    own = {seq.id: tokens * size for seq, tokens in allocator.own_tokens() if tokens}
    locked = sum(node.tokens for node in tree.nodes() if node.locks)
    kept = sum(node.tokens for node in tree.nodes() if not node.locks)
    return {**own, "held": locked * size, "cached": kept * size}


def check_pages(witness: Witness, stays: Any, allocator: Any) -> None:
    """Check page counts, since the allocator's tables have no page numbers: each sequence has as
    many pages as its table says at each sample. No page has two owners.
    """
    page_bytes = allocator.page_tokens * allocator.token_bytes
    assert (stays["address"] % page_bytes == 0).all()
    moments = list(witness.counted.items())
    last = max(witness.counted, default=0)
    for now_ps, said in moments[:: 1 + len(moments) // 60]:
        here = stays[(stays["start_ps"] <= now_ps) & (stays["end_ps"] > now_ps)]
        here = here.sort_values("address")
        ends = (here["address"] + here["num_bytes"]).to_numpy()
        assert (ends[:-1] <= here["address"].to_numpy()[1:]).all()
        assert not len(ends) or ends[-1] <= allocator.pool_tokens * allocator.token_bytes
        if now_ps == last:
            continue
        held = here[here["kind"] == "held"]
        drawn = held.groupby(held["request"].astype(str))["num_bytes"].sum()
        own = {name: size for name, size in said.items() if name not in ("held", "cached")}
        assert held["num_bytes"].sum() == said["held"] + sum(own.values())
        assert here["num_bytes"].sum() - held["num_bytes"].sum() == said["cached"]
        assert all(drawn.get(name, 0) >= size for name, size in own.items())


def check_map(scenario: dict[str, Any], requests: Iterable[Request]) -> None:
    simulation = Simulation(Scenario.from_table(scenario), list(requests))
    witness = Witness()
    simulation.run(simulation.scenario.allocator[0], "", observer=witness)
    stays = witness.close().table()
    if witness.counted:
        spec = simulation.replica_spec(simulation.scenario.allocator[0])
        check_pages(witness, stays, spec.build().allocator)
        return
    assert witness.said
    unit = next((getattr(each, "_bytes", None) for each in witness._recorders or ()), None)
    moments = list(witness.said.items())
    for now_ps, said in moments[:: 1 + len(moments) // 60]:
        here = stays[(stays["start_ps"] <= now_ps) & (stays["end_ps"] > now_ps)]
        drawn = set()
        for row in here.itertuples():
            for address in range(row.address, row.address + row.num_bytes, unit or row.num_bytes):
                assert (address, row.kind) not in drawn
                drawn.add((address, row.kind))
        assert drawn == said or now_ps == max(witness.said)


@pytest.mark.parametrize("allocator", ALLOCATOR_TABLES, ids=str)
def test_address_map_equals_the_block_tables(allocator: dict[str, Any]) -> None:
    """The map is empty for allocators without addresses."""
    if not has_places(allocator):
        check_empty(allocator)
        return

    @settings(max_examples=10, deadline=None)
    @given(streams())
    def checked(requests: list[Request]) -> None:
        check_map({**BASE, "allocator": [allocator]}, requests)

    checked()


def check_empty(allocator: dict[str, Any]) -> None:
    scenario = Scenario.from_table({**BASE, "allocator": [allocator]})
    simulation = Simulation(scenario, [Request("r", 0, 40, 20)])
    log = AddressLog()
    simulation.run(scenario.allocator[0], "counted", observer=log)
    assert log.close().table().empty


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=str)
@settings(max_examples=10, deadline=None)
@given(streams())
@unless_thrashing
def test_address_map_is_consistent_under_every_scheduler(
    scheduler: dict[str, Any], requests: list[Request]
) -> None:
    paged = {"kind": "paged", "block_size": 16}
    check_map({**BASE, "allocator": [paged], "scheduler": scheduler}, requests)


@settings(max_examples=10, deadline=None)
@given(streams())
def test_address_map_is_consistent_with_llama_server_slots(requests: list[Request]) -> None:
    server = {"kind": "llama-server", "n_parallel": 3, "kv_unified": True, "cache_ram": 0}
    check_map({**BASE, "allocator": [{"kind": "cells"}], "scheduler": server}, requests)


@settings(max_examples=15, deadline=None)
@given(streams())
def test_address_map_is_consistent_with_several_layer_groups(requests: list[Request]) -> None:
    check_map({**HYBRID, "allocator": [{"kind": "paged"}]}, requests)


def test_address_map_bytes_equal_the_held_bytes() -> None:
    """Without sharing, the map's areas are the ledger's: held is all that sequences had."""
    scenario = Scenario.load("chat", ["workload.num_requests=150", "max_steps=1"])
    for run in Simulation(scenario).result(addresses=True).runs:
        stays = run.table("addresses")
        areas = stays["num_bytes"] * 1.0 * (stays["end_ps"] - stays["start_ps"])
        drawn = areas.groupby(stays["kind"], observed=True).sum()
        whole = run.summary["memory"]["capacity_bytes"] * float(run.recorder.total_ps)
        shares = run.summary["memory"]["time_mean"]
        held = sum(shares[name] for name in ("used", "reserved", "overprovisioned", "rounding"))
        assert drawn["held"] / whole == pytest.approx(held, rel=1e-3)
        assert drawn.get("cached", 0.0) / whole == pytest.approx(shares["cached"], rel=1e-3)


def test_address_log_stops_recording_at_its_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "MOST_STAYS", 300)
    scenario = Scenario.load("chat", ["workload.num_requests=60"])
    for run in Simulation(scenario).result(addresses=True).runs:
        stays = run.table("addresses")
        whole = run.memory["end_ps"].max()
        if run.kind == "paged":
            assert stays["end_ps"].max() < whole
            assert len(stays) >= 300
        assert run.table("events") is not None
