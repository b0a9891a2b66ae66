"""Speculative decoding with a host memory tier: hits, drafts and refusals."""

from typing import Any

import pytest
from support.events import events_and_steps
from support.scenarios import conversations, run

from kvsim.plumbing.errors import InputError

HOST = {"kind": "vllm-offloading", "kv_offloading_size": 8.0}
EAGLE = {"method": "eagle", "num_speculative_tokens": 3, "acceptance_rate": 0.7}


def tables(**changes: Any) -> dict[str, Any]:
    """Conversations with drafts; the pool holds three of them."""
    return {
        **conversations(24_000),
        "scheduler": {"kind": "continuous", "max_num_batched_tokens": 2048},
        "speculative_config": EAGLE,
        "tier": [HOST],
        **changes,
    }


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("prompts_alone", [False, True])
def test_k_steps_equal_single_steps_with_drafts_and_host_memory(
    *, overlaps: bool, prompts_alone: bool
) -> None:
    table = tables(tier=[HOST | {"offload_prompt_only": prompts_alone}])
    table["scheduler"]["async_scheduling"] = overlaps
    together, singly = run(table), run(table | {"max_steps": 1})
    assert together.simulated() == singly.simulated()
    assert together.prefix_cache.host_hit_tokens
    assert together.requests.finished == 48


def test_k_steps_with_drafts_cost_few_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences verify as a batch, and the connector says for how many steps it has nothing to
    do.
    """
    workload = {
        "kind": "synthetic", "num_requests": 4, "arrivals": {"kind": "poisson", "rate_per_s": 1.0},
        "prompt": {"kind": "fixed", "tokens": 100}, "output": {"kind": "fixed", "tokens": 400},
    }  # fmt: skip
    num_events, num_steps = events_and_steps(monkeypatch, tables(workload=workload))
    assert num_events < num_steps / 2


def test_host_memory_hit_ends_one_chunk_earlier_with_a_drafter() -> None:
    """As on the device: the drafter's KV of the last chunk depends on the next token."""
    drafted, plain = run(tables()), run(tables(speculative_config=None))
    assert drafted.prefix_cache.host_hit_tokens > 0
    assert drafted.prefix_cache.hit_tokens < plain.prefix_cache.hit_tokens


@pytest.mark.parametrize(
    "changes",
    [
        {"tier": [HOST, {"kind": "file-system"}]},
        {"tier": [{"kind": "lmcache", "max_local_cpu_size": 1.0}]},
    ],
)
def test_unsupported_connector_with_drafts_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"tokens drafted ahead are (not )?simulated"):
        run(tables(**changes))
