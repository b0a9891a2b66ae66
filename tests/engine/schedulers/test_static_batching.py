"""Static batching, worked by hand: batches form when the engine is empty and leave together."""

from typing import Any

import pytest

import kvsim
from kvsim.request import Request

STEP = {"kind": "linear", "base_us": 1000}
MS = 10**9
SLOTS = {"kind": "max-buffer", "placement": {"kind": "fixed-slots", "slot_tokens": 256}}


def run(tables: Any, requests: list[Request], allocator: Any = SLOTS, **parts: Any) -> Any:
    made = {
        "allocator": [allocator],
        "scheduler": {"kind": "static", "max_num_seqs": 2},
        "step_time": STEP,
        "model": {"name": "opt-125m", "max_model_len": 256},
        "memory": {"kv_cache_tokens": 1024},
        **parts,
    }
    (found,) = kvsim.simulate(tables(**made), requests).runs
    return found


def ends_ms(found: Any) -> dict[str, float]:
    return {row["id"]: row["finish_ps"] / MS for row in found.requests.to_dict("records")}


def test_static_batch_finishes_together_before_the_next_batch_starts(tables: Any) -> None:
    requests = [
        Request("short", 0, 10, 2),
        Request("long", 0, 10, 7),
        Request("late", int(0.5 * MS), 10, 1),
        Request("later", int(2.5 * MS), 10, 4),
    ]
    found = run(tables, requests)
    # `late` and `later` both came before the first batch ended at 7 and make the second.
    assert ends_ms(found) == {"short": 7, "long": 7, "late": 11, "later": 11}


def test_finished_member_keeps_its_slot_until_the_batch_ends(tables: Any) -> None:
    found = run(tables, [Request("short", 0, 10, 1), Request("long", 0, 10, 11)])
    memory = found.summary["memory"]["step_mean"]
    # Two of four slots of 256 tokens are held in all eleven steps.
    held = memory["used"] + memory["reserved"] + memory["overprovisioned"]
    assert held == pytest.approx(0.5)
    assert memory["used"] == pytest.approx((10 + 10 + 5) / 1024)


def test_static_batch_size_is_limited_by_memory(tables: Any) -> None:
    requests = [Request(f"r{index}", 0, 10, 3) for index in range(5)]
    found = run(tables, requests, scheduler={"kind": "static"})
    assert sorted(ends_ms(found).values()) == [3, 3, 3, 3, 6]


def test_static_batch_prefills_all_prompts_in_one_step(tables: Any) -> None:
    step = {"kind": "linear", "base_us": 1000, "prefill_token_us": 100}
    found = run(tables, [Request("a", 0, 20, 1), Request("b", 0, 30, 1)], step_time=step)
    assert ends_ms(found) == {"a": 6, "b": 6}


def test_finished_members_free_memory_before_a_preemption(tables: Any) -> None:
    """Blocks of 16 under a batch of two: the one that is done gives way to the one that grows."""
    requests = [Request("done", 0, 64, 1), Request("grows", 0, 64, 130)]
    found = run(
        tables,
        requests,
        {"kind": "paged", "block_size": 16, "enable_prefix_caching": False},
        memory={"num_gpu_blocks": 14},
    )
    assert found.summary["preemptions"] == 0
    assert ends_ms(found) == {"done": 130, "grows": 130}
