"""Copy on write: what the samples of a request and the beams of a search hold together."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.beams import BeamFamily
from support.cases import SCHEDULERS, streams
from support.outcomes import unless_thrashing

import kvsim
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request

TOKEN_BYTES = 819200  # OPT-13B


def run(requests: list[Request], *, tokens: int = 1 << 16, **more: Any) -> Any:
    tables = {
        "model": {"name": "opt-13b"},
        "device": {"name": "a100-80gb"},
        "memory": {"kv_cache_tokens": tokens},
        "allocator": [{"kind": "paged", "sharing": "copy-on-write"}],
        "scheduler": {"kind": "continuous", "max_num_batched_tokens": 2048},
        "step_time": {"kind": "linear", "base_us": 1000},
        **more,
    }
    (found,) = kvsim.simulate(tables, requests).runs
    return found


def held_blocks(rows: Any, block_size: int) -> list[int]:
    held = rows.used_bytes + rows.reserved_bytes + rows.overprovisioned_bytes
    return [int(byte) // (block_size * TOKEN_BYTES) for byte in held]


# --- parallel sampling ------------------------------------------------------------------------


@pytest.mark.parametrize("caching", [True, False])
@settings(max_examples=25, deadline=None)
@given(
    prompt=st.integers(1, 100),
    output=st.integers(2, 60),
    n=st.integers(1, 6),
    block=st.sampled_from([1, 4, 16, 64]),
)
def test_forked_samples_hold_the_number_of_blocks_of_the_formula(
    caching: bool, prompt: int, output: int, n: int, block: int
) -> None:
    found = run(
        [Request("r", 0, prompt, output, n=n)],
        allocator=[
            {
                "kind": "paged",
                "block_size": block,
                "sharing": "copy-on-write",
                "enable_prefix_caching": caching,
            }
        ],
        max_steps=1,
    )
    rows = found.memory[found.memory.steps == 1]
    full = prompt // block
    # Step 0 computes the prompt, step g writes the g-th token of each sample behind it.
    expected = [ceil_div(prompt, block)]
    expected += [full + n * (ceil_div(prompt + g, block) - full) for g in range(1, output)]
    assert held_blocks(rows, block) == expected
    logical = [n * ceil_div(prompt + g, block) for g in range(output)]
    assert found.summary["memory"]["sharing_savings"] == pytest.approx(
        1 - sum(expected) / sum(logical)
    )
    copies = n - 1 if prompt % block else 0
    assert found.summary["copied_bytes"] == copies * block * TOKEN_BYTES


def test_samples_share_only_full_blocks_through_the_prefix_cache() -> None:
    request = [Request("r", 0, 40, 30, n=4)]
    allocator = {"kind": "paged", "sharing": "cache"}
    rows = run(request, allocator=[allocator], max_steps=1).memory
    assert held_blocks(rows[rows.steps == 1], 16)[0] == 2 + 4  # of 40 tokens, 8 are not shared
    plain = {**allocator, "enable_prefix_caching": False}
    found = run(request, allocator=[plain]).summary
    assert found["memory"]["sharing_savings"] == 0.0


def test_samples_fork_by_default_only_under_vllm_v0() -> None:
    request = [Request("r", 0, 40, 30, n=4)]
    default = [{"kind": "paged"}]
    forked = run(request, allocator=default, scheduler={"kind": "vllm-v0"}).summary
    assert forked["copied_bytes"] == 3 * 16 * TOKEN_BYTES
    assert run(request, allocator=default).summary["copied_bytes"] == 0


def test_sample_without_a_free_block_for_its_copy_is_preempted() -> None:
    # Five blocks: a prompt of 4 and a half, shared, leaves nothing to copy the half into.
    found = run([Request("r", 0, 72, 4, n=2)], tokens=6 * 16)
    assert found.summary["requests"]["finished"] == 1
    assert found.summary["preemptions"] == 1


def test_copy_on_write_is_refused_for_several_kv_cache_groups() -> None:
    with pytest.raises(InputError, match="sharing"):
        run([Request("r", 0, 8, 8)], model={"name": "gemma-3-1b"})


@st.composite
def sampled_streams(draw: st.DrawFn) -> list[Request]:
    """Streams whose requests have several samples."""
    return [request._replace(n=n) for request in draw(streams()) for n in [draw(st.integers(1, 4))]]


@pytest.mark.parametrize(
    "scheduler", SCHEDULERS, ids=lambda table: "-".join(map(str, table.values()))
)
@settings(max_examples=4, deadline=None)
@given(requests=sampled_streams(), caching=st.booleans())
@unless_thrashing
def test_runs_of_k_steps_equal_single_steps(
    scheduler: dict[str, Any], requests: list[Request], caching: bool
) -> None:
    allocator = {
        "kind": "paged",
        "sharing": "copy-on-write",
        "enable_prefix_caching": caching,
    }
    outcomes = []
    for steps in ({"max_steps": 1}, {}):
        found = run(requests, tokens=1024, allocator=[allocator], scheduler=scheduler, **steps)
        summary = {key: value for key, value in found.summary.items() if key != "wall_s"}
        outcomes.append((summary, found.recorder.time_sum, found.recorder.step_sum))
    assert outcomes[0] == outcomes[1]


# --- beams ------------------------------------------------------------------------------------


@given(
    prompt=st.integers(1, 70),
    steps=st.integers(1, 50),
    n=st.integers(1, 6),
    block=st.sampled_from([1, 4, 16]),
)
def test_beams_that_never_fork_equal_parallel_samples(
    prompt: int, steps: int, n: int, block: int
) -> None:
    family = BeamFamily(prompt, block)
    full = prompt // block
    for g in range(1, steps + 1):
        family.step([0] * n if g == 1 else range(n))
        assert family.physical_blocks == full + n * (ceil_div(prompt + g, block) - full)
        assert family.logical_blocks == n * ceil_div(prompt + g, block)
    assert family.copied_blocks == (n - 1 if prompt % block else 0)


@given(data=st.data(), prompt=st.integers(1, 20), block=st.sampled_from([1, 3, 4]))
def test_beams_share_blocks_of_their_common_history(
    data: st.DataObject, prompt: int, block: int
) -> None:
    """Beams hold one block where their histories agree to its end, and a last block each."""
    family = BeamFamily(prompt, block)
    histories: list[tuple[object, ...]] = [tuple(range(prompt))]
    width = data.draw(st.integers(1, 5))
    for step in range(data.draw(st.integers(1, 20))):
        last = len(histories)
        parents: Sequence[int] = data.draw(
            st.lists(st.integers(0, last - 1), min_size=width, max_size=width)
        )
        partial = bool(family.tokens % block)
        before = family.copied_blocks
        family.step(parents)
        histories = [(*histories[p], (step, i)) for i, p in enumerate(parents)]
        assert family.copied_blocks - before == (width - len(set(parents))) * partial
        full = family.tokens // block
        distinct = {history[: (j + 1) * block] for history in histories for j in range(full)}
        assert family.physical_blocks == len(distinct) + width * bool(family.tokens % block)
    assert 0 <= family.savings < 1
