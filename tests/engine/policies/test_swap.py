"""Preemption by swapping to host memory, against cases worked by hand."""

from typing import Any

import pytest

import kvsim
from kvsim.engine.link import Link
from kvsim.engine.policies.preemption import Swap
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS, PS_PER_S
from kvsim.request import Request
from kvsim.sequence import Sequence

TOKEN_BYTES = 819200  # OPT-13B
STEP_MS = 10
SWAP = {"kind": "continuous", "preemption_mode": "swap"}


def run(tables: Any, scheduler: dict[str, Any], **more: Any) -> Any:
    """Two requests of 32 prompt tokens and 20 output tokens on a pool of 5 blocks of 16 slots: both
    start with 2 blocks, both need a third for slot 32, and only the first gets one.
    """
    made = tables(
        model={"name": "opt-13b"},
        device={"name": "a100-40gb", "host_gb_per_s": 25},
        memory={"kv_cache_tokens": 6 * 16},
        allocator=[{"kind": "paged", "enable_prefix_caching": False}],
        step_time={"kind": "linear", "base_us": STEP_MS * 1000},
        scheduler=scheduler,
        **more,
    )
    (found,) = kvsim.simulate(made, [Request(name, 0, 32, 20) for name in "ab"]).runs
    return found


def test_swapped_sequence_is_swapped_in_and_resumes(tables: Any) -> None:
    found = run(tables, {**SWAP, "swap_latency_us": 50})
    copy_ps = 50 * 10**6 + 32 * TOKEN_BYTES * PS_PER_S // (25 * 10**9)
    step_ps = STEP_MS * PS_PER_MS
    rows = found.requests.set_index("id")
    # Step 1 computes both prompts. Before step 2, b goes out. a is done after step 20, then b comes
    # back, and makes its 19 other tokens.
    assert rows.finish_ps["a"] == 20 * step_ps + copy_ps
    assert rows.finish_ps["b"] == 39 * step_ps + 2 * copy_ps
    assert found.summary["swapped_bytes"] == 2 * 32 * TOKEN_BYTES
    assert found.summary["recomputed_tokens"] == 0
    assert found.summary["preemptions"] == 1


def test_swapped_sequence_holds_its_blocks_until_the_copy_ends(tables: Any) -> None:
    found = run(tables, SWAP)
    out = found.memory[(found.memory.steps == 0) & (found.memory.num_running > 0)].iloc[0]
    assert out.used_bytes == 2 * 32 * TOKEN_BYTES


def test_default_preemption_recomputes_without_copies(tables: Any) -> None:
    found = run(tables, {"kind": "continuous"})
    assert found.summary["swapped_bytes"] == 0
    assert found.summary["recomputed_tokens"] == 32


def test_preemption_recomputes_if_host_memory_is_full(tables: Any) -> None:
    room_gib = 31 * TOKEN_BYTES / 2**30
    found = run(tables, {**SWAP, "swap_space_gib": room_gib})
    assert found.summary["swapped_bytes"] == 0
    assert found.summary["recomputed_tokens"] == 32


def test_v0_swapped_in_sequence_decodes_in_the_same_step(tables: Any) -> None:
    found = run(tables, {**SWAP, "kind": "vllm-v0"}, max_steps=1)
    rows = found.requests.set_index("id")
    assert found.summary["preemptions"] == 1
    # Two more blocks are taken in step 2, none is left, and b goes out before step 3 with 33
    # computed tokens: it makes 2 tokens in the first two steps, and 18 when a is done.
    assert found.summary["steps"] == 38
    assert found.summary["swapped_bytes"] == 2 * 33 * TOKEN_BYTES
    assert rows.finish_ps["b"] > 38 * STEP_MS * PS_PER_MS


def test_swap_copies_queue_for_the_link() -> None:
    link = Link(bytes_per_s=1000, latency_ps=7)
    assert link.copy_ps(0, 2) == 7 + 2 * 10**9
    assert link.copy_ps(10**9, 1) == 10**9 + 14 + 10**9  # waits for the first
    assert link.copy_ps(10**12, 1) == 7 + 10**9


def test_swapped_host_memory_is_counted() -> None:
    space = Swap(100)
    first, second = (Sequence(Request(name, 0, 8, 8), 0) for name in "ab")
    assert space.put(first, 6, 60)
    assert not space.put(second, 5, 50)
    assert space.kept_tokens(first) == 6
    assert space.kept_tokens(second) == 0
    assert space.take(first) == 60
    assert space.put(second, 5, 50)
    space.drop(second)
    assert (space.free_bytes, space.swapped_bytes) == (100, 170)


def test_swap_options_without_swap_are_refused(tables: Any) -> None:
    with pytest.raises(InputError, match="swap_space_gib"):
        run(tables, {"kind": "continuous", "swap_space_gib": 1})


def test_swapping_sliding_windows_is_refused(tables: Any) -> None:
    with pytest.raises(InputError, match="preemption_mode"):
        kvsim.simulate(
            tables(
                model={"name": "gemma-3-1b"},
                allocator=[{"kind": "paged"}],
                scheduler=SWAP,
                memory={"kv_cache_tokens": 4096},
            ),
            [Request("r", 0, 8, 8)],
        )


def test_unsupported_swap_combination_is_refused_before_any_run(tables: Any) -> None:
    """The first allocator of the scenario could run, the second could not."""
    made = tables(
        model={"name": "gemma-3-1b"},
        allocator=[{"kind": "max-buffer"}, {"kind": "paged"}],
        scheduler=SWAP,
        memory={"kv_cache_tokens": 4096},
    )
    started: list[str] = []
    with pytest.raises(InputError, match="preemption_mode"):
        kvsim.simulate(
            made, [Request("r", 0, 8, 8)], progress=lambda label, *_: started.append(label)
        )
    assert started == []
