"""The survey of a scenario names its bottleneck, and separate simulations find the same one."""

from pathlib import Path
from typing import Any

import pytest
from support.chats import chats
from support.public_traces import public_trace

from kvsim.scenario import load_tables
from kvsim.whatif.advice.baseline import Baseline, load_of
from kvsim.whatif.advice.baseline_sentences import baseline_sentences, head
from kvsim.whatif.advice.change import goal_named
from kvsim.whatif.advice.survey import Survey
from kvsim.whatif.backends import BACKENDS
from kvsim.whatif.capacity.load import faster
from kvsim.whatif.capacity.questions import QUESTIONS
from kvsim.whatif.pairs import Trials
from kvsim.whatif.replicates import replicates
from kvsim.whatif.runner import TaskRunner
from kvsim.whatif.scenario_tables import paged_alone
from kvsim.whatif.task import make_task, run_task


def surveyed(table: dict[str, Any], goal: str = "e2e_s.mean", repeat: int = 3) -> Baseline:
    return survey(table, goal, repeat).of(table, table)


def survey(table: dict[str, Any], goal: str, repeat: int, folder: Path = Path()) -> Survey:
    trials = Trials(TaskRunner(BACKENDS.get("processes")(jobs=1)), folder)
    return Survey(trials, replicates(table, folder, repeat), folder, goal_named(goal))


def mean_of(table: dict[str, Any], seeds: range, name: str = "e2e_s.mean") -> float:
    """The mean of a measure over separate simulations at these seeds, without `kvsim advise`."""
    rows = [run_task(make_task({**table, "seed": seed}, Path())).rows[0] for seed in seeds]
    return sum(float(row[name]) for row in rows) / len(rows)


def idle(tables: Any) -> dict[str, Any]:
    """Two requests/s for a server that could serve some twenty, in a pool that holds forty."""
    table = chats(tables, memory={"kv_cache_tokens": 10_000})
    table["workload"]["arrivals"]["rate_per_s"] = 2.0
    return table


def test_survey_reports_no_bottleneck_if_memory_never_fills(tables: Any) -> None:
    found = surveyed(idle(tables))
    assert found.load.binds is None
    assert not found.load.touches_memory
    assert found.twice == (0, 0, 0)
    first, second, *_ = baseline_sentences(found, "e2e_s.mean", "3 more seeds", "requests/s")
    assert first.startswith("Memory never binds: at its fullest ")
    assert second.startswith("3 more seeds, on which nothing was searched, say the same: ")
    other = {**idle(tables), "seed": 100}
    looking = survey(other, "e2e_s.mean", 3)
    assert head(looking.load(other, looking.on.search)) == "Memory never binds"


@pytest.mark.parametrize(
    ("binds", "parts"),
    [
        ("memory", {"memory": {"kv_cache_tokens": 1200}}),
        ("limit", {"scheduler": {"kind": "continuous", "max_num_seqs": 3}}),
    ],
)
def test_bottleneck_is_named(tables: Any, binds: str, parts: dict[str, Any]) -> None:
    found = surveyed(chats(tables, **parts))
    assert found.load.binds == found.again.binds == binds
    assert found.headroom is None
    assert found.twice is not None
    assert found.twice.mean < -0.2 if binds == "memory" else found.twice == (0, 0, 0)


def test_headroom_rate_holds_just_below_and_fails_just_above(tables: Any) -> None:
    table = idle(tables)
    room = surveyed(table).headroom
    assert room is not None
    assert room.beyond is not None
    assert room.factor < room.bound_at <= room.factor * 1.06
    assert room.rate_per_s == pytest.approx(2 * room.bound_at)
    for factor, free in ((room.factor, True), (room.bound_at, False)):
        tasks = [
            make_task({**faster(table, factor), "seed": seed}, Path(), waits=True)
            for seed in range(3)
        ]
        load = load_of([run_task(task).rows[0] for task in tasks])
        assert (load.binds is None and load.keeps_up) == free


def test_smallest_pool_is_sufficient_and_a_smaller_one_is_not(tables: Any) -> None:
    table = chats(tables, model={"name": "opt-125m", "max_model_len": 512})
    table["workload"]["clip_to"] = 512
    pool = surveyed(table).pool
    assert pool is not None
    assert pool.lost_tokens is not None
    assert pool.lost_tokens < pool.tokens < pool.of
    today = mean_of(table, range(3))
    assert mean_of(QUESTIONS["pool"].put(table, pool.tokens), range(3)) < 1.02 * today
    assert mean_of(QUESTIONS["pool"].put(table, pool.lost_tokens), range(3)) > today


def test_smallest_pool_still_fits_one_sequence_of_max_model_len(tables: Any) -> None:
    """vLLM does not start otherwise: 1,024 tokens take 64 blocks of 16, and one more is the null
    block.
    """
    table = idle(tables)
    table["workload"]["arrivals"]["rate_per_s"] = 0.2
    pool = surveyed(table).pool
    assert pool is not None
    assert 1040 <= pool.tokens <= 1040 * 1.06


def test_headroom_is_none_for_arrivals_without_a_rate(tables: Any) -> None:
    table = idle(tables)
    table["workload"] |= {"arrivals": {"kind": "at-once"}, "num_requests": 3}
    assert surveyed(table).headroom is None


def test_advice_on_the_azure_trace_is_equal_in_other_windows() -> None:
    public_trace("AzureLLMInferenceTrace_conv.csv")
    table, folder = load_tables("azure-conv", [])
    _, alone = paged_alone(table, folder)
    looking = survey(alone, "e2e_s.mean", 5, folder)
    first, again = (looking.load(alone, on) for on in (looking.on.search, looking.on.report))
    assert head(first) == head(again)
    assert first.binds is None  # on the whole: there are full pools, some hundred waits among 6,000
