"""Orca's iteration-level scheduling: cases worked by hand, and a law that any FCFS batch obeys."""

from typing import Any

import numpy as np
import pytest

import kvsim
from kvsim.request import Request

STEP = {"kind": "linear", "base_us": 1000}
MS = 10**9


def run(tables: Any, requests: list[Request], **parts: Any) -> Any:
    allocator = {"kind": "max-buffer", "reserve": "exact"}
    made = {"allocator": [allocator], "scheduler": {"kind": "orca"}, "step_time": STEP, **parts}
    (found,) = kvsim.simulate(tables(**made), requests).runs
    return found


def ends_ms(found: Any) -> dict[str, float]:
    return {row["id"]: row["finish_ps"] / MS for row in found.requests.to_dict("records")}


def test_prompt_joins_the_running_batch_in_the_step_after_its_arrival(tables: Any) -> None:
    found = run(tables, [Request("a", 0, 10, 5), Request("b", int(1.5 * MS), 10, 3)])
    # a computes in steps 1 to 5; b comes in step 2, joins in step 3 and ends in step 5.
    assert ends_ms(found) == {"a": 5, "b": 5}


def test_blocked_queue_head_holds_back_smaller_requests(tables: Any) -> None:
    requests = [Request("a", 0, 600, 10), Request("big", 0, 600, 2), Request("small", 0, 10, 2)]
    found = run(tables, requests, memory={"kv_cache_tokens": 1000})
    assert ends_ms(found) == {"a": 10, "big": 12, "small": 12}
    assert found.summary["preemptions"] == 0


def test_decode_tokens_count_against_the_token_budget(tables: Any) -> None:
    limits = {"kind": "orca", "max_num_batched_tokens": 100}
    requests = [Request("a", 0, 50, 20), Request("b", 0, 50, 20), Request("c", 1, 99, 2)]
    # a and b fill step 1; c's 99 tokens and two decoders are one too many until both have left.
    assert ends_ms(run(tables, requests, scheduler=limits)) == {"a": 20, "b": 20, "c": 22}


def test_running_sequences_never_exceed_max_num_seqs(tables: Any) -> None:
    requests = [Request(f"r{index}", 0, 10, 4) for index in range(5)]
    found = run(tables, requests, scheduler={"kind": "orca", "max_num_seqs": 2})
    assert sorted(ends_ms(found).values()) == [4, 4, 8, 8, 12]


def test_prompt_above_the_token_budget_is_refused_by_name(tables: Any) -> None:
    limits = {"kind": "orca", "max_num_batched_tokens": 64}
    found = run(tables, [Request("a", 0, 65, 2), Request("b", 0, 64, 2)], scheduler=limits)
    assert found.summary["requests"] == {"submitted": 2, "finished": 1, "rejected": 1}
    (reason,) = found.requests.query("status == 'rejected'").reason
    assert "65" in reason
    assert "max_num_batched_tokens" in reason


@pytest.mark.parametrize("reserve", ["model-max", "pow2", "exact"])
def test_orca_mean_batch_size_obeys_the_fcfs_law_without_preemption(
    tables: Any, reserve: str
) -> None:
    """A saturated first-come batch has each request for one step a token: so the mean over steps of
    tokens per running sequence is sum over requests of (prompt + i, i < output) / sum of outputs,
    whatever the allocator.
    """
    rng = np.random.Generator(np.random.PCG64(7))
    prompts, outputs = rng.integers(1, 300, 400), rng.integers(1, 200, 400)
    requests = [
        Request(f"r{index}", 0, prompt, output)
        for index, (prompt, output) in enumerate(
            zip(prompts.tolist(), outputs.tolist(), strict=True)
        )
    ]
    allocator = {"kind": "max-buffer", "reserve": reserve, "placement": "buddy"}
    found = run(
        tables,
        requests,
        allocator=[allocator],
        memory={"kv_cache_tokens": 983 * 16},
        model={"name": "opt-125m", "max_model_len": 2048},
    )
    recorder = found.recorder
    token_bytes = recorder.capacity_bytes // (983 * 16)
    held = (prompts * outputs + outputs * (outputs - 1) // 2).sum()
    assert recorder.step_sum[0] == held * token_bytes
    assert found.summary["preemptions"] == 0
    rows = np.frombuffer(recorder.series, dtype=np.int64).reshape(recorder.steps and -1, 25)
    assert (rows[:, 2] * rows[:, 3]).sum() == outputs.sum()
