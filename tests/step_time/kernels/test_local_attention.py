"""Attention over chunks (Llama 4): a query at position p sees p mod chunk + 1 keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.device import named_device
from kvsim.model import named_model
from kvsim.step import Chunk, StepShape
from kvsim.step_time import STEP_TIMES
from kvsim.step_time.kernels.curves import KernelSheet, TimePoints
from kvsim.step_time.kernels.sequence_attention import (
    LocalDecodeAttention,
    LocalSheet,
    PrefillChunks,
)
from kvsim.step_time.options import Hardware

CHUNK = 12
PS = 840  # of a key that a query sees; 1 to 4 chunks or sequences divide it
KEYS = list(range(CHUNK + 1))
sizes = st.integers(1, 5 * CHUNK)


def keys_seen(first: int, end: int) -> int:
    """Keys seen by the queries at positions first to end - 1, counted one by one."""
    return sum(position % CHUNK + 1 for position in range(first, end))


@given(sizes, st.integers(0, 5 * CHUNK), st.integers(1, 4), st.integers(0, 10**6))
def test_local_attention_prompt_pairs_equal_a_count_by_position(new, prior, chunks, start):
    causal = [start + PS * each * (each + 1) // 2 for each in KEYS]
    prefill = PrefillChunks(KernelSheet([1], [TimePoints(KEYS, causal)]), True, CHUNK)
    alone = prefill.chunk_ps(Chunk(new, prior), 1)
    pairs = PS * keys_seen(prior, prior + new)
    assert alone == (max(start, pairs) if prior else start + pairs)
    assert prefill.chunk_ps(Chunk(new, prior), chunks) == pytest.approx(alone, abs=1)


@given(sizes, st.integers(1, 4), sizes)
def test_local_attention_decode_reads_its_own_chunk(position, batch, steps):
    lines = [TimePoints(KEYS, [PS * each * many for each in KEYS]) for many in (1, 4)]
    local = LocalDecodeAttention(batch, LocalSheet(CHUNK, KernelSheet([1, 4], lines)))
    context = batch * (position + 1)
    run = local.run(batch, context)
    for step in range(min(steps, run.steps or steps)):
        seen = keys_seen(position + step, position + step + 1)
        assert run.first_ps + run.growth_ps * step == PS * batch * seen
        assert local.run(batch, context + batch * step).first_ps == PS * batch * seen


@pytest.fixture(scope="module")
def scout():
    hardware = Hardware(named_model("llama-4-scout"), named_device("b200"), 2, engine="vllm")
    return STEP_TIMES.parse({"kind": "kernels"}, "step_time").build(hardware)


def test_llama_4_has_local_and_global_attention_layers(scout):
    assert [each.chunk_tokens for each in scout.local] == [8192]
    assert [each.local_tokens for each in scout.prefill] == [0, 8192]


def test_decode_step_is_shorter_after_a_local_attention_chunk_ends(scout):
    last, first = (scout.step_ps(StepShape((), 32, 32 * each)) for each in (8192, 8193))
    assert first < last
    run = scout.decode_run(32, 32 * 8190)
    assert run.steps is not None
    assert run.steps <= 3


def test_sliding_window_is_not_a_local_attention_chunk():
    hardware = Hardware(named_model("gpt-oss-120b"), named_device("h100"), engine="vllm")
    form = STEP_TIMES.parse({"kind": "kernels"}, "step_time").build(hardware)
    assert not form.local
    assert not any(each.local_tokens for each in form.prefill)
