"""Allocators with separate schedulers: several engines on one stream."""

from typing import Any

import pytest

import kvsim
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.scenario import Scenario

REQUESTS = [Request(f"r{i}", i * 10**9, 80, 30, 200) for i in range(60)]
SGLANG = {"kind": "sglang", "schedule_policy": "lpm"}


def test_allocators_with_separate_schedulers_run_as_if_alone(tables: Any) -> None:
    paged, radix = {"kind": "paged"}, {"kind": "radix"}
    both = tables(allocator=[paged, {**radix, "scheduler": SGLANG}])
    alone = [
        kvsim.simulate(tables(allocator=[paged]), REQUESTS).runs[0],
        kvsim.simulate(tables(allocator=[radix], scheduler=SGLANG), REQUESTS).runs[0],
    ]
    together = kvsim.simulate(both, REQUESTS).runs
    for mine, theirs in zip(together, alone, strict=True):
        assert mine.requests.equals(theirs.requests)
    assert not together[0].requests.equals(together[1].requests)


def test_scheduler_of_an_allocator_survives_writing_and_reading(tables: Any) -> None:
    made = tables(allocator=[{"kind": "paged"}, {"kind": "radix", "scheduler": SGLANG}])
    tables_written = kvsim.simulate(made, REQUESTS).scenario
    written = tables_written["allocator"][1]["scheduler"]
    assert (written["kind"], written["schedule_policy"]) == ("sglang", "lpm")
    again = Scenario.from_table(tables_written)
    assert again.allocator[1].scheduler == Scenario.from_table(made).allocator[1].scheduler
    assert "scheduler" not in tables_written["allocator"][0]


def test_labels_distinguish_schedulers(tables: Any) -> None:
    made = tables(allocator=[{"kind": "radix", "scheduler": kind} for kind in ("sglang", "orca")])
    assert Scenario.from_table(made).labels() == ["radix scheduler=sglang", "radix scheduler=orca"]


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        ({"kind": "sglng"}, "allocator.scheduler.kind.*did you mean 'sglang'"),
        ({"kind": "sglang", "max_num_seqs": 4}, "allocator.scheduler.max_num_seqs: unknown key"),
        (7, "allocator.scheduler: not a table"),
    ],
)
def test_errors_in_an_allocators_scheduler_name_its_key(
    tables: Any, scheduler: Any, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        Scenario.from_table(tables(allocator=[{"kind": "radix", "scheduler": scheduler}]))


def test_requests_without_max_tokens_are_noted(tables: Any) -> None:
    made = tables(allocator=[{"kind": "radix", "scheduler": "sglang"}])
    silent = [Request("r0", 0, 10, 5)]
    (note,) = kvsim.simulate(made, silent).scenario["provenance"]["notes"]
    assert note.startswith("1 request declares no max_tokens")
    assert not kvsim.simulate(made, REQUESTS).scenario["provenance"]["notes"]
