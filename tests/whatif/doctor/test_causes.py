"""What every registered cause of the doctor must provide."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.each import check_each

from kvsim.readers.vllm.args import KNOWN
from kvsim.scenario import Scenario, load_tables
from kvsim.simulation import Simulation
from kvsim.whatif.doctor.causes import CAUSES
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.doctor.subject import subject_of

SERVERS = sorted((Path(__file__).parent / "servers").glob("*.toml"))
# Arguments of vLLM 0.33 (engine/arg_utils.py) that `kvsim import` does not read.
# And flags of llama-server.
MORE = {
    "swa_full",
    "cache_ram",
    "max_cudagraph_capture_size",
    "prefix_cache_retention_interval",
    "speculative_config",
}


def case(path: Path) -> ExaminedRun:
    table, folder = load_tables(path)
    return ExaminedRun(subject_of(table, folder, None, 120, 12).table, folder)


@pytest.mark.parametrize("path", SERVERS, ids=lambda path: path.stem)
def test_suspected_causes_have_evidence_and_valid_cures(path: Path) -> None:
    """Evidence is sentences with numbers; cures are valid scenarios with flags that vLLM has. The
    waits by reason sum to all waiting time, to the picosecond.
    """
    subject = case(path)
    check_each(CAUSES.own, lambda name: check_cause(name, subject))
    assert sum(subject.watch.waited_ps.values()) == subject.recorder.waiting_sum
    assert len(subject.preempted) == subject.summary["preemptions"]


def check_cause(name: str, subject: ExaminedRun) -> None:
    cause = CAUSES.get(name)()
    assert cause.title
    suspicion = cause.suspect(subject)
    if suspicion is None:
        return
    assert suspicion.evidence
    assert all(re.search(r"\d", each) or len(each) > 20 for each in suspicion.evidence)
    for cure in suspicion.cures:
        there = cure.put(subject.table)
        assert there != subject.table
        Simulation(Scenario.from_table(there, subject.folder), [])
        assert cure.flags
        for flag in re.findall(r"--([a-z][a-z0-9-]*)", cure.flags):
            argument = flag.removeprefix("no-").replace("-", "_")
            assert argument in {*KNOWN, *MORE}, flag


def crowded(tables: Any, pool_tokens: int = 4096, **scheduler: Any) -> ExaminedRun:
    """Fifty requests of 500 tokens at once."""
    workload = {
        "kind": "synthetic",
        "num_requests": 50,
        "arrivals": {"kind": "at-once"},
        "prompt": {"kind": "fixed", "tokens": 400},
        "output": {"kind": "fixed", "tokens": 100},
    }
    table = tables(
        memory={"kv_cache_tokens": pool_tokens},
        allocator=[{"kind": "paged"}],
        scheduler={"kind": "continuous", "max_num_batched_tokens": 8192, **scheduler},
        workload=workload,
    )
    return ExaminedRun(table, Path())


def test_queue_at_max_num_seqs_counts_as_waiting_for_the_limit(tables: Any) -> None:
    waits = crowded(tables, max_num_seqs=2).waits
    assert waits.limit == pytest.approx(waits.total)
    assert waits.limit > 0.5


def test_queue_at_a_full_pool_counts_as_waiting_for_memory(tables: Any) -> None:
    waits = crowded(tables, max_num_seqs=50).waits
    assert waits.memory == pytest.approx(waits.total)
    assert waits.memory > 0.5


def test_queue_after_long_prompts_counts_as_waiting_for_the_token_budget(tables: Any) -> None:
    waits = crowded(tables, 50_000, max_num_seqs=50, max_num_batched_tokens=64).waits
    assert waits.step == pytest.approx(waits.total)
    assert waits.step > 0.4
