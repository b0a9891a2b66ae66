"""Cases with analytic results: closed forms and queueing formulas."""

from typing import Any

import numpy as np
import pytest

import kvsim
from kvsim.plumbing.units import PS_PER_MS, PS_PER_S, PS_PER_US
from kvsim.request import Request

BASE_MS, PREFILL_US, SEQ_US, CONTEXT_NS = 8, 40, 60, 500


def linear(**more: float) -> dict[str, Any]:
    return {
        "kind": "linear",
        "base_us": BASE_MS * 1000,
        "prefill_token_us": PREFILL_US,
        "decode_seq_us": SEQ_US,
        "context_token_ns": CONTEXT_NS,
        **more,
    }


@pytest.mark.parametrize("kind", ["paged", "max-buffer", "doubling"])
def test_one_request_takes_the_sum_of_its_steps(tables: Any, kind: str) -> None:
    prompt, output = 300, 200
    made = tables(allocator=[{"kind": kind}], step_time=linear(), memory={"kv_cache_tokens": 8192})
    (run,) = kvsim.simulate(made, [Request("r", 0, prompt, output)]).runs
    (row,) = run.requests.to_dict("records")
    first = BASE_MS * PS_PER_MS + prompt * PREFILL_US * PS_PER_US
    steps = output - 1
    # Step t attends to prompt + t + 1 tokens, the new one included.
    contexts = steps * prompt + steps * (steps + 1) // 2
    rest = steps * (BASE_MS * PS_PER_MS + SEQ_US * PS_PER_US) + contexts * CONTEXT_NS * 1000
    copies = 0
    if kind == "doubling":  # 512 tokens hold all but need no growth beyond the second buffer
        copies = row["finish_ps"] - first - rest
        moved = run.summary["copied_bytes"]
        assert copies == pytest.approx(2 * moved / 1.555e12 * PS_PER_S, rel=1e-6)
    assert row["first_token_ps"] == first
    assert row["finish_ps"] == first + rest + copies


def test_the_ledger_of_one_request_is_its_closed_form(tables: Any) -> None:
    prompt, output, block, slots = 100, 60, 16, 1024
    step = {"kind": "linear", "base_us": 1000}
    made = tables(
        allocator=[{"kind": "paged", "block_size": block}],
        step_time=step,
        memory={"kv_cache_tokens": slots},
    )
    (run,) = kvsim.simulate(made, [Request("r", 0, prompt, output)]).runs
    held = np.arange(prompt, prompt + output)  # one more slot each step, all steps equally long
    blocks = -(-held // block) * block
    final = prompt + output - 1
    mean = run.summary["memory"]["time_mean"]
    assert mean["used"] == pytest.approx(held.mean() / slots)
    assert mean["overprovisioned"] == pytest.approx(np.maximum(0, blocks - final).mean() / slots)
    assert mean["reserved"] == pytest.approx((np.minimum(blocks, final) - held).mean() / slots)
    assert mean["metadata"] == block / slots
    assert run.summary["memory"]["peak_used"] == final / slots
    assert mean == run.summary["memory"]["step_mean"]


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_max_num_seqs_of_one_is_an_m_d_1_queue(tables: Any, load: float) -> None:
    service_s, num = 0.010, 40_000
    made = tables(
        allocator=[{"kind": "paged"}],
        scheduler={"kind": "continuous", "max_num_seqs": 1},
        step_time={"kind": "linear", "base_us": service_s * 1e6},
        workload={
            "kind": "synthetic",
            "num_requests": num,
            "arrivals": {"kind": "poisson", "rate_per_s": load / service_s},
            "prompt": {"kind": "fixed", "tokens": 8},
            "output": {"kind": "fixed", "tokens": 1},
        },
    )
    (run,) = kvsim.simulate(made).runs
    # Pollaczek and Khinchine: the mean wait of M/D/1 is load * service / (2 * (1 - load)).
    wait_s = load * service_s / (2 * (1 - load))
    assert run.summary["queue_s"]["mean"] == pytest.approx(wait_s, rel=0.08)
    assert run.summary["ttft_s"]["mean"] == pytest.approx(
        run.summary["queue_s"]["mean"] + service_s
    )
    assert run.summary["running_mean"] == pytest.approx(load, rel=0.03)


def test_a_closed_loop_obeys_the_response_time_law(tables: Any) -> None:
    users, think_s = 5, 0.5
    made = tables(
        allocator=[{"kind": "paged"}],
        step_time={"kind": "linear", "base_us": 10_000},
        workload={
            "kind": "synthetic",
            "num_requests": 1000,
            "arrivals": {
                "kind": "closed-loop",
                "num_users": users,
                "think": {"kind": "fixed", "seconds": think_s},
            },
            "prompt": {"kind": "fixed", "tokens": 16},
            "output": {"kind": "fixed", "tokens": 20},
        },
    )
    (run,) = kvsim.simulate(made).runs
    summary = run.summary
    # X = N / (R + Z); the first and the last round are not in balance.
    law = users / (summary["e2e_s"]["mean"] + think_s)
    assert summary["requests_per_s"] == pytest.approx(law, rel=0.02)
