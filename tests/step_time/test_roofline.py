"""The roofline: closed forms from the datasheets, runs that equal their steps, monotone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.device import named_device
from kvsim.model import named_model
from kvsim.plumbing.units import PS_PER_MS, PS_PER_S, PS_PER_US
from kvsim.step import Chunk, StepShape
from kvsim.step_time import STEP_TIMES
from kvsim.step_time.correction import NONE, Correction
from kvsim.step_time.options import Hardware

CASES = [
    ("opt-13b", "a100-40gb", 1),
    ("llama-3-70b", "h100", 4),
    ("mixtral-8x7b", "h200", 2),
    ("deepseek-v3", "h200", 8),
    ("gemma-3-12b", "a100-80gb", 1),
    ("gpt-oss-20b", "l40s", 1),
    ("bamba-9b", "h100", 1),
    ("llama-4-scout", "h200", 4),
]


def build(model, device, tp=1, layout=None, **options):
    hardware = Hardware(named_model(model), named_device(device), tp, layout)
    return STEP_TIMES.parse({"kind": "roofline", **options}, "step_time").build(hardware)


IDEAL = {"memory_efficiency": 1, "compute_efficiency": 1, "overhead_us": 1, "layer_us": 0}
FORMS = {case: build(*case) for case in CASES}
forms = st.sampled_from(CASES).map(FORMS.__getitem__)
chunks = st.builds(Chunk, st.integers(1, 9000), st.integers(0, 20_000))


def decode(num_decode, context_tokens):
    return StepShape((), num_decode, context_tokens)


@given(
    forms,
    st.integers(1, 256),
    st.integers(1, 200_000),
    st.lists(st.integers(0, 10**6), min_size=1),
)
def test_every_step_of_a_run_equals_the_single_step(form, num_decode, extra, offsets):
    context = num_decode + extra
    run = form.decode_run(num_decode, context)
    last = 10**6 if run.steps is None else run.steps - 1
    for step in {0, last, *(offset % (last + 1) for offset in offsets)}:
        single = form.step_ps(decode(num_decode, context + num_decode * step))
        assert run.first_ps + run.growth_ps * step == single


@given(forms, st.integers(1, 64), st.integers(1, 3000))
def test_decode_run_ends_only_where_step_growth_changes(form, num_decode, extra):
    run = form.decode_run(num_decode, num_decode + extra)
    if run.steps is not None:
        after = form.step_ps(decode(num_decode, num_decode + extra + num_decode * run.steps))
        assert after < run.first_ps + run.growth_ps * run.steps


@given(forms, st.lists(chunks, max_size=4), st.integers(0, 64), st.integers(0, 10**5), chunks)
def test_more_work_never_takes_less_time(form, some, num_decode, extra, one_more):
    context = num_decode + extra if num_decode else 0
    before = form.step_ps(StepShape(tuple(some), num_decode, context))
    assert form.step_ps(StepShape((*some, one_more), num_decode, context)) > before
    assert form.step_ps(StepShape(tuple(some), num_decode + 1, context + 1)) > before


@given(forms, st.integers(1, 5000), st.integers(0, 5000))
def test_sliding_window_chunk_counts_only_pairs_in_the_window(form, new, prior):
    for group in form.attention:
        window = group.window_tokens or prior + new
        pairs = sum(min(prior + i, window) for i in range(1, new + 1))
        reads = min(prior + new, window + new - 1)
        if group.attention_chunk is not None:
            pairs = sum(i % group.attention_chunk + 1 for i in range(prior, prior + new))
            reads = new + prior % group.attention_chunk
        expected = max(pairs * group.pair_fs, reads * group.read_fs) // 1000
        assert group.chunk_ps(Chunk(new, prior)) == expected


def test_decode_step_takes_weight_and_kv_bytes_at_peak_bandwidth():
    form = build("llama-3-8b", "h200", **IDEAL)
    model = named_model("llama-3-8b")
    weights = model.weight_bytes() - 2 * model.vocab_size * model.hidden_size
    context = 1000 * 131_072
    expected = PS_PER_US + (weights + context) * PS_PER_S / 4.8e12
    assert form.step_ps(decode(1, 1000)) == pytest.approx(expected, rel=1e-5)


def test_long_prefill_takes_its_flops_at_peak_rate():
    form = build("llama-3-8b", "h200", **IDEAL)
    model = named_model("llama-3-8b")
    flops = 4096 * model.matmul_flops_per_token + model.logits_flops
    flops += model.attention_flops(range(1, 4097))
    expected = PS_PER_US + flops * PS_PER_S / 989.4e12
    assert form.step_ps(StepShape((Chunk(4096, 0),), 0, 0)) == pytest.approx(expected, rel=1e-5)


def test_roofline_decode_steps_are_near_published_ones():
    """About 22 ms of OPT-13B on A100-40GB (fitted base); eight sequences of Qwen3-32B on one H100
    and on two (the leaderboard the options name); 18.2 ms of Llama-3.1-8B on RTX 4090 (the base of
    the shipped calibration and the constant that its run shows)."""
    assert build("opt-13b", "a100-40gb").step_ps(decode(8, 3000)) == pytest.approx(
        22 * PS_PER_MS, rel=0.05
    )
    for gpus, measured_ms in ((1, 25.2), (2, 15.1)):
        step_ps = build("qwen3-32b", "h100", gpus).step_ps(decode(8, 8 * 520))
        assert step_ps == pytest.approx(measured_ms * PS_PER_MS, rel=0.02)
    assert build("llama-3.1-8b", "h100").step_ps(decode(1, 500)) == pytest.approx(
        6.5 * PS_PER_MS, rel=0.02
    )
    assert build("llama-3.1-8b", "rtx-4090").step_ps(decode(1, 16)) == pytest.approx(
        18.2 * PS_PER_MS, rel=0.05
    )


def test_expert_weights_are_read_by_routed_tokens():
    """One token of Mixtral reads 2 of 8 experts; a thousand tokens read all."""
    form = FORMS["mixtral-8x7b", "h200", 2]
    (miss, all_ps), shared_ps = form.experts[0], form.weights_ps
    assert miss == 0.75
    one = form.step_ps(decode(1, 1))
    many = form.step_ps(decode(128, 128))
    assert many - one > 0.7 * all_ps > shared_ps


def test_an_fp8_cache_halves_the_context_term():
    layout = named_model("llama-3-8b").kv_layout("fp8")
    (half,) = build("llama-3-8b", "h200", layout=layout).attention
    (whole,) = build("llama-3-8b", "h200").attention
    assert half.context_ps == pytest.approx(whole.context_ps / 2, rel=1e-4)


@given(forms, st.integers(0, 64), st.integers(1, 3000), st.lists(chunks, max_size=3))
def test_correction_scales_and_shifts_the_roofline(form, num_decode, extra, prefill):
    shape = StepShape(tuple(prefill), num_decode, num_decode * extra)
    tokens = num_decode + shape.prefill_tokens
    assert form.corrected(NONE) == form
    if not tokens:
        return
    added = form.corrected(Correction(PS_PER_MS, token_ps=PS_PER_US, chunk_ps=5 * PS_PER_US))
    assert added.step_ps(shape) - form.step_ps(shape) == (
        PS_PER_MS + PS_PER_US * tokens + 5 * PS_PER_US * len(prefill)
    )
    twice = form.corrected(Correction(scale_ppm=2_000_000))
    assert twice.step_ps(shape) == pytest.approx(2 * form.step_ps(shape), rel=1e-9, abs=10)


def test_local_attention_layers_read_their_own_chunk():
    """Llama 4: 36 of 48 layers see 8,192 tokens at most, half of that in the mean beyond them."""
    form = FORMS["llama-4-scout", "h200", 4]
    whole, local = form.attention
    assert (whole.attention_chunk, local.attention_chunk) == (None, 8192)
    assert local.context_ps == pytest.approx(3 * whole.context_ps, rel=1e-3)
    bare = form.step_ps(decode(4, 4)) - 4 * (whole.context_ps + local.context_ps)
    for context, seen in ((8000, 8000), (8192, 8192), (8193, 4096.5), (100_000, 4096.5)):
        attention = 4 * (context * whole.context_ps + seen * local.context_ps)
        assert form.step_ps(decode(4, 4 * context)) == bare + attention
    run = form.decode_run(4, 4 * 8000)
    assert run.steps == 193
    assert form.decode_run(4, 4 * 8193).growth_ps == 4 * whole.context_ps
