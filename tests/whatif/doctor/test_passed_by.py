"""Requests that the scheduler skips in the queue do not count as waiting for memory."""

from pathlib import Path
from typing import Any

import pytest

from kvsim.scenario import Scenario, load_tables
from kvsim.simulation import Simulation
from kvsim.whatif.advice.baseline import LoadReading
from kvsim.whatif.advice.baseline_sentences import evidence, head
from kvsim.whatif.advice.knobs import KNOBS
from kvsim.whatif.backends import BACKENDS
from kvsim.whatif.doctor.causes import CAUSES
from kvsim.whatif.doctor.doctor_findings import doctor_findings
from kvsim.whatif.doctor.examine import Doctor
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.doctor.subject import subject_of
from kvsim.whatif.runner import TaskRunner
from kvsim.whatif.watch import QueueWaits

SERVERS = Path(__file__).parent / "servers"


def crowd(tables: Any, **parts: Any) -> ExaminedRun:
    """Sixty requests at once, for a pool that can hold them all."""
    workload = {
        "kind": "synthetic",
        "num_requests": 60,
        "arrivals": {"kind": "at-once"},
        "prompt": {"kind": "fixed", "tokens": 40},
        "output": {"kind": "fixed", "tokens": 60},
    }
    scheduler = {"kind": "continuous", "max_num_seqs": 64, "max_num_batched_tokens": 8192}
    table = tables(
        memory={"kv_cache_tokens": 50_000},
        allocator=[{"kind": "paged"}],
        scheduler={**scheduler, **parts.pop("scheduler", {})},
        workload={**workload, **parts},
    )
    return ExaminedRun(table, Path())


def test_queue_on_adapter_slots_counts_as_waiting_for_adapters(tables: Any) -> None:
    case = crowd(tables, adapters={"count": 12, "share": 1.0}, scheduler={"max_loras": 2})
    waits = case.waits
    assert waits.adapters == pytest.approx(waits.total)
    assert waits.adapters > 0.5
    assert not case.memory_binds
    assert sum(case.watch.waited_ps.values()) == case.recorder.waiting_sum
    suspicion = CAUSES.get("few-adapters")().suspect(case)
    assert suspicion is not None
    assert next(dict(cure.changes) for cure in suspicion.cures) == {"scheduler.max_loras": 4}


def test_queue_with_free_adapter_slots_does_not_wait_for_adapters(tables: Any) -> None:
    case = crowd(tables, adapters={"count": 12, "share": 1.0}, scheduler={"max_loras": 12})
    assert case.waits.adapters == 0
    assert CAUSES.get("few-adapters")().suspect(case) is None


def test_queue_at_the_encoder_budget_counts_as_waiting_for_the_encoder(tables: Any) -> None:
    items = [{"tokens": {"kind": "fixed", "tokens": 40}}]
    room = {"max_num_encoder_input_tokens": 40, "encoder_cache_size": 40}
    case = crowd(
        tables,
        prompt={"kind": "fixed", "tokens": 1},
        items=items,
        scheduler=room,
    )
    waits = case.waits
    assert waits.encoder == pytest.approx(waits.total)
    assert waits.encoder > 0.2
    assert waits.memory == 0


def test_requests_skipped_for_a_tier_load_count_as_waiting_for_loads() -> None:
    table, folder = load_tables(SERVERS / "slow-link.toml")
    case = ExaminedRun(subject_of(table, folder, None, 200, 12).table, folder)
    assert case.waits.loads > 0.2


def test_advice_tries_more_adapters_if_memory_keeps_room(tables: Any) -> None:
    knobs = {knob.key: knob for knob in KNOBS}
    kept = Simulation(Scenario.load(str(SERVERS / "few-adapters.toml")))
    assert list(knobs["scheduler.max_loras"].values(kept)) == []
    first, *_, most = knobs["memory.max_loras"].values(kept)
    assert (first, most) == (8, len({r.adapter for r in kept.stream.requests} - {None}))
    case = crowd(tables, adapters={"count": 12, "share": 1.0}, scheduler={"max_loras": 2})
    assert list(knobs["scheduler.max_loras"].values(case.simulation)) == [4, 8, 12]
    assert list(knobs["memory.max_loras"].values(case.simulation)) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("adapters", "max_loras binds"),
        ("encoder", "The encoder's budget or cache binds"),
        ("loads", "Loads from the tiers bind"),
    ],
)
def test_bottleneck_is_named(name: str, words: str) -> None:
    load = LoadReading(3, 0, 300, 0, 0.1, QueueWaits(**{name: 0.5}))
    assert load.binds == name
    assert head(load) == words
    assert "50 % of their time (50 % for " in evidence(load)


def test_doctor_blames_few_adapter_slots_instead_of_memory() -> None:
    table, folder = load_tables(SERVERS / "few-adapters.toml")
    runner = TaskRunner(BACKENDS.get("processes")(jobs=1))
    diagnosis = Doctor(subject_of(table, folder, None, 200, 9), runner, repeat=3).diagnose()
    (cause,) = diagnosis.causes
    assert cause.name == "few-adapters"
    assert cause.cure is not None
    assert cause.cure.flags.startswith("--max-loras ")
    signs = next(each for each in doctor_findings(diagnosis).sections if each.title == "Signs")
    assert any("adapter's slot" in str(row[0]) for row in signs.rows)  # type: ignore[union-attr]
