"""The linear step time: exact integers, and runs that equal their steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.device import named_device
from kvsim.model import named_model
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_US
from kvsim.step import Chunk, StepShape
from kvsim.step_time import STEP_TIMES
from kvsim.step_time.options import Hardware

HARDWARE = Hardware(named_model("opt-13b"), named_device("a100-40gb"))


def build(**options):
    return STEP_TIMES.parse({"kind": "linear", **options}, "step_time").build(HARDWARE)


def test_linear_step_times_in_whole_microseconds_are_exact():
    form = build(base_us=8000, prefill_token_us=40, decode_seq_us=60)
    shape = StepShape((Chunk(100, 0), Chunk(28, 512)), 7, 12_345)
    assert form.step_ps(shape) == (8000 + 40 * 128 + 60 * 7) * PS_PER_US


def test_an_empty_step_takes_no_time():
    assert build(base_us=8000).step_ps(StepShape((), 0, 0)) == 0


def test_linear_step_time_equals_the_published_a100_fit():
    """22 ms + 0.15 ms a prompt token + 0.63 us a KV token, OPT-13B on A100-40GB."""
    form = build(base_us=22_000, prefill_token_us=150, context_token_ns=630)
    assert (
        form.step_ps(StepShape((Chunk(161, 0),), 30, 15_000))
        == (22_000_000 + 150_000 * 161 + 630 * 15_000) * 1000
    )


@given(
    base=st.floats(0.001, 1e5),
    seq=st.just(0.0) | st.floats(1e-9, 1e3),
    context=st.just(0.0) | st.floats(1e-9, 1e4),
    num_decode=st.integers(1, 512),
    context_tokens=st.integers(1, 10**6),
    step=st.integers(0, 5000),
)
def test_every_step_of_a_run_equals_the_single_step(
    base, seq, context, num_decode, context_tokens, step
):
    form = build(base_us=base, decode_seq_us=seq, context_token_ns=context)
    run = form.decode_run(num_decode, context_tokens)
    assert run.steps is None
    shape = StepShape((), num_decode, context_tokens + num_decode * step)
    assert run.first_ps + run.growth_ps * step == form.step_ps(shape)


def test_steps_without_any_time_are_refused():
    with pytest.raises(InputError, match="steps would take no time"):
        build(prefill_token_us=40)
    with pytest.raises(InputError, match=r"step_time\.base_us"):
        build(base_us=-1)
    with pytest.raises(InputError, match="unknown key"):
        build(base=1)
