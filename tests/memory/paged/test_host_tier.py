"""The prefix cache's tier in host memory, against a case worked by hand."""

from typing import Any

import pytest

import kvsim
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS, PS_PER_S
from kvsim.request import Request

TOKEN_BYTES = 819200  # OPT-13B
BLOCK_BYTES = 16 * TOKEN_BYTES
SHARED = ((1 << 40, 64),)


def run(host_blocks: float | None, requests: list[Request], **more: Any) -> Any:
    """A pool of 5 blocks of 16 slots, a step of 10 ms and 1 ms a prompt token, 25 GB/s."""
    paged: dict[str, Any] = {"kind": "paged", **more}
    if host_blocks is not None:
        paged["host_cache_gib"] = host_blocks * BLOCK_BYTES / 2**30
    tables = {
        "model": {"name": "opt-13b"},
        "device": {"name": "a100-40gb", "host_gb_per_s": 25},
        "memory": {"kv_cache_tokens": 6 * 16},
        "allocator": [paged],
        "step_time": {"kind": "linear", "base_us": 10_000, "prefill_token_us": 1000},
    }
    (found,) = kvsim.simulate(tables, requests).runs
    return found


def again() -> list[Request]:
    """A prompt of 4 blocks, one that takes the whole pool, and the first prompt again."""
    return [
        Request("a", 0, 64, 1, prompt_runs=SHARED),
        Request("b", PS_PER_S, 80, 1),
        Request("c", 2 * PS_PER_S, 64, 1, prompt_runs=SHARED),
    ]


def test_evicted_content_is_loaded_from_host_memory() -> None:
    found = run(10.5, again())
    rows = found.requests.set_index("id")
    # c finds 3 of its 4 blocks in the host (the last token is computed), and its 16 last tokens
    # are computed after these have been copied in.
    load_ps = 3 * BLOCK_BYTES * PS_PER_S // (25 * 10**9)
    assert rows.cached_tokens["c"] == 48
    first = rows.first_token_ps["c"] - rows.arrival_ps["c"]
    assert first == load_ps + (10 + 16) * PS_PER_MS
    # b's admission evicts the 4 blocks of a; c's evicts b's, whose content nobody can name.
    assert found.summary["swapped_bytes"] == (4 + 3) * BLOCK_BYTES
    assert found.summary["prefix_cache"] == {
        "query_tokens": 64 + 80 + 64,
        "hit_tokens": 48,
        "host_hit_tokens": 48,
    }


def test_evicted_content_is_recomputed_without_a_host_tier() -> None:
    found = run(None, again())
    assert found.summary["prefix_cache"]["hit_tokens"] == 0
    assert found.summary["swapped_bytes"] == 0


def test_full_host_tier_evicts_least_recently_used_content() -> None:
    # Blocks are evicted tail first, so a tier of 2 keeps the head: of 4, the last two to come.
    found = run(2.5, again())
    assert found.summary["prefix_cache"]["host_hit_tokens"] == 32
    assert found.summary["swapped_bytes"] == (4 + 2) * BLOCK_BYTES


def test_device_hits_come_before_host_hits() -> None:
    # b takes 3 of 5 blocks: one was never used, two more are the tail of a.
    requests = again()
    requests[1] = Request("b", PS_PER_S, 48, 1)
    found = run(10.5, requests)
    cache = found.summary["prefix_cache"]
    assert (cache["hit_tokens"], cache["host_hit_tokens"]) == (48, 16)


@pytest.mark.parametrize(
    ("more", "model"),
    [
        ({"enable_prefix_caching": False}, "opt-13b"),
        ({"sharing": "copy-on-write"}, "opt-13b"),
        ({}, "gemma-3-1b"),
    ],
)
def test_host_tier_needs_prefix_caching_one_block_table_and_no_copy_on_write(
    more: dict[str, Any], model: str
) -> None:
    with pytest.raises(InputError, match="host_cache_gib"):
        kvsim.simulate(
            {
                "model": {"name": model},
                "device": {"name": "a100-40gb"},
                "allocator": [{"kind": "paged", "host_cache_gib": 1, **more}],
            },
            again(),
        )
