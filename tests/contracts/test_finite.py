"""Every run ends: with all requests finished or refused by name, or with a named error."""

from typing import Any

import pytest

import kvsim
from kvsim.plumbing.errors import InputError
from kvsim.request import Request


def test_samples_that_preempt_each_other_endlessly_are_a_settings_error(tables: Any) -> None:
    """Samples of equal priority and arrival, chunked prompts, and no check that a whole prompt
    fits: each chunk of one takes the memory of the other. The real scheduler continues for ever.
    """
    made = tables(
        allocator=[{"kind": "paged", "block_size": 3, "enable_prefix_caching": False}],
        scheduler={
            "kind": "continuous",
            "policy": "priority",
            "scheduler_reserve_full_isl": False,
            "long_prefill_token_threshold": 21,
            "max_num_seqs": 3,
        },
        memory={"num_gpu_blocks": 35},
    )
    requests = [Request("twins", 0, 70, 2, n=2)]
    with pytest.raises(InputError, match="scheduler_reserve_full_isl"):
        kvsim.simulate(made, requests)
    made["scheduler"]["scheduler_reserve_full_isl"] = True
    (run,) = kvsim.simulate(made, requests).runs
    assert run.summary["requests"]["finished"] == 1


@pytest.mark.parametrize("kind", ["paged", "max-buffer", "doubling"])
def test_a_pool_too_small_for_every_request_refuses_them_all(tables: Any, kind: str) -> None:
    made = tables(allocator=[{"kind": kind}], memory={"kv_cache_tokens": 128})
    requests = [Request(f"r{i}", i * 10**9, 400, 10) for i in range(20)]
    (run,) = kvsim.simulate(made, requests).runs
    assert run.summary["requests"] == {"submitted": 20, "finished": 0, "rejected": 20}
    assert run.requests["reason"].str.contains("limit").all()


@pytest.mark.parametrize("kind", ["paged", "doubling"])
def test_tenfold_overload_ends_with_all_requests_finished(tables: Any, kind: str) -> None:
    made = tables(allocator=[{"kind": kind}], memory={"kv_cache_tokens": 640})
    requests = [Request(f"r{i}", i * 10**8, 60 + i % 90, 40 + i % 200) for i in range(300)]
    (run,) = kvsim.simulate(made, requests).runs
    assert run.summary["requests"]["finished"] == 300
    assert run.summary["preemptions"] > 100
