"""A vLLM decode engine can deadlock: kvsim reports it instead of simulating polls forever."""

from typing import Any

import pytest

from evidence.schedule.vllm_pd.case import VllmPairCase
from kvsim.plumbing.errors import InputError


def engine(role: str, num_gpu_blocks: int, budget: int) -> dict[str, Any]:
    window = {"kind": "sliding", "window_tokens": 32, "block_size": 16, "groups": 1}
    return {
        "block_size": 16,
        "max_num_seqs": 16,
        "max_num_batched_tokens": budget,
        "max_model_len": 256,
        "prefix_caching": True,
        "async_scheduling": True,
        "policy": "fcfs",
        "scheduler_block_size": 16,
        "prefix_match_unit": 16,
        "hit_alignment": 16,
        "prefix_cache_retention_interval": 0,
        "num_gpu_blocks": num_gpu_blocks,
        "max_in_flight_tokens": 2 * budget,
        "kv_groups": [window, {"kind": "full", "block_size": 16}],
        "pd": {
            "role": role,
            "block_bytes": [65536, 65536],
            "lease": 600000,
            "heartbeat_interval": 100000,
            "lease_extension": 400000,
            "window_blocks": [3, 0],
            "load_failure": "recompute",
        },
    }


def test_pd_deadlock_after_a_failed_read_names_the_request() -> None:
    """A read takes only the blocks of a sliding window, but recomputing the prompt takes all
    blocks. vLLM 0.33.0 schedules requests that own blocks in order and stops at this one. No
    request after it starts, and none frees blocks. In five such random cases vLLM's scheduler made
    no step in 400,000 polls.
    """
    lengths = [(2, 5), (181, 30), (166, 1), (53, 9), (70, 80), (79, 2)]
    requests: list[dict[str, Any]] = [
        {"id": f"r{i}", "arrival": 5000 + 9000 * i, "prompt_len": prompt, "out": out}
        for i, (prompt, out) in enumerate(lengths)
    ]
    requests[2]["fail_read"] = True
    case = {
        "name": "deadlock",
        "desc": "drawn",
        "proxy": 500,
        "cost": {"a": 10, "b": 60, "c": 0},
        "link": {"latency": 10, "bytes_per_tick": 50, "handshake": 20000},
        "engine": {
            "prefill": engine("kv_producer", 98, 32),
            "decode": engine("kv_consumer", 42, 64),
        },
        "requests": requests,
    }
    with pytest.raises(InputError, match=r"wait for each other for ever.*r2 of 166 tokens"):
        VllmPairCase.parse(case, "deadlock").simulated([])
    for blocks, policy in ((90, "recompute"), (42, "fail")):
        decode = case["engine"]["decode"]  # type: ignore[index]
        decode["num_gpu_blocks"], decode["pd"]["load_failure"] = blocks, policy
        rows = VllmPairCase.parse(case, "room").simulated([])
        finished = {name for row in rows if row["side"] == "decode" for name in row["finished"]}
        assert finished == {f"r{i}" for i in range(6)}
