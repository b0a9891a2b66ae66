"""Step times of Dynamo's mocker: its polynomials, and runs that equal their steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.device import named_device
from kvsim.model import named_model
from kvsim.plumbing.errors import InputError
from kvsim.step import Chunk, StepShape
from kvsim.step_time import STEP_TIMES
from kvsim.step_time.form import StepTime
from kvsim.step_time.options import Hardware

POOL = 1 << 20


def form(pool_tokens: int | None = POOL) -> StepTime:
    hardware = Hardware(named_model("llama-3.1-8b"), named_device("h200"), pool_tokens=pool_tokens)
    return STEP_TIMES.parse({"kind": "dynamo-mocker"}, "step_time").build(hardware)


def decode_ms(share: float) -> float:
    return 5.74 + 54.01 * share - 25.74 * share**2


@given(context=st.integers(1, 2 * POOL), num=st.integers(1, 64))
def test_mocker_decode_run_equals_single_steps_and_the_polynomial(context: int, num: int) -> None:
    step_time = form()
    run = step_time.decode_run(num, context)
    for step in range(min(run.steps or 4, 4)):
        ps = step_time.step_ps(StepShape((), num, context + num * step))
        assert ps == run.first_ps + run.growth_ps * step
        share = min(1.0, (context + num * step) / POOL)
        assert ps / 1e9 == pytest.approx(decode_ms(share), abs=2e-4)


def test_mocker_prompt_step_has_prefill_and_decode_parts() -> None:
    prefill_ms = 4.209989e-07 * 8192**2 + 0.01518344 * 8192 + 16.50142
    ms = form().step_ps(StepShape((Chunk(8192, 0),), 0, 0)) / 1e9
    assert ms == pytest.approx(prefill_ms + decode_ms(8192 / POOL), abs=2e-4)
    assert form().step_ps(StepShape((), 0, 0)) == 0


@pytest.mark.parametrize("pool_tokens", [1, 100, 257])
def test_small_pool_has_mocker_step_times(pool_tokens: int) -> None:
    step_time = form(pool_tokens)
    for context in range(1, 300):
        run = step_time.decode_run(1, context)
        assert run.steps is None or run.steps > 0
        assert run.first_ps == step_time.step_ps(StepShape((), 1, context)) > 0


def test_mocker_with_a_pool_of_unknown_size_is_refused() -> None:
    with pytest.raises(InputError, match="depend on the size of the KV pool"):
        form(None)
