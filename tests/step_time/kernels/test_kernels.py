"""Steps composed of kernels: runs that equal their steps, growth, edges, clear refusals."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvsim
from kvsim.device import named_device
from kvsim.model import named_model
from kvsim.model.find import find_model
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.step import Chunk, StepShape
from kvsim.step_time import STEP_TIMES
from kvsim.step_time.correction import Correction
from kvsim.step_time.kernels.compose import _elementwise
from kvsim.step_time.kernels.form import KernelOptions
from kvsim.step_time.kernels.host import NOTHING, host_cost
from kvsim.step_time.kernels.parts import Kernels, ModelSplit
from kvsim.step_time.kernels.roofs import RoofTables
from kvsim.step_time.options import Hardware

CASES = [
    ("llama-3.1-8b", "h100", 1, "vllm"),
    ("qwen3-32b", "h100", 2, "sglang"),
    ("gpt-oss-120b", "h200", 4, "vllm"),
    ("minimax-m2", "b200", 4, "vllm"),
    ("kimi-k2.5", "h200", 8, "vllm"),
    ("glm-5", "b200", 8, "sglang"),
    ("deepseek-v3", "b200", 8, "sglang"),
    ("qwen3.5-397b-a17b", "h200", 8, "sglang"),
    ("gemma-3-12b", "a100-80gb", 1, "vllm"),
    ("bamba-9b", "l40s", 1, "sglang"),
    ("llama-4-scout", "b200", 2, "vllm"),
]


def build(model, device, tp=1, engine="vllm", dp=1, expert_parallel=False, **options):
    shard = (named_model(model), named_device(device), tp)
    hardware = Hardware(
        *shard, data_parallel_size=dp, expert_parallel=expert_parallel, engine=engine
    )
    return STEP_TIMES.parse({"kind": "kernels", **options}, "step_time").build(hardware)


@cache
def form_of(*case):
    return build(*case)


forms = st.sampled_from(CASES).map(lambda case: form_of(*case))
chunks = st.builds(Chunk, st.integers(1, 9000), st.integers(0, 200_000))


def decode(num_decode, context_tokens):
    return StepShape((), num_decode, context_tokens)


@settings(deadline=None)
@given(
    forms,
    st.integers(1, 3000),
    st.integers(0, 3_000_000),
    st.lists(st.integers(0, 10**6), min_size=1),
)
def test_every_step_of_a_run_equals_the_single_step(form, num_decode, extra, offsets):
    context = num_decode + extra
    run = form.decode_run(num_decode, context)
    last = 10**6 if run.steps is None else run.steps - 1
    outside = form.outside_domain(decode(num_decode, context))
    for step in {0, last, *(offset % (last + 1) for offset in offsets)}:
        single = decode(num_decode, context + num_decode * step)
        assert run.first_ps + run.growth_ps * step == form.step_ps(single)
        assert form.outside_domain(single) == outside


@settings(deadline=None)
@given(forms, st.integers(1, 256), st.integers(1, 100_000), st.integers(0, 2000))
def test_nonempty_steps_take_positive_time(form, num_decode, extra, new):
    context = num_decode + extra
    assert form.step_ps(StepShape((), 0, 0)) == 0
    alone = form.step_ps(decode(num_decode, context))
    assert alone > 0
    if new:
        mixed = StepShape((Chunk(new, 0),), num_decode, context)
        assert form.step_ps(mixed) > 0


@settings(deadline=None)
@given(forms, st.integers(1, 128))
def test_decode_step_time_grows_with_a_much_longer_context(form, num_decode):
    short, long = (form.step_ps(decode(num_decode, num_decode * each)) for each in (512, 65536))
    assert long > short


@settings(deadline=None)
@given(forms, chunks)
def test_step_with_a_prompt_adds_host_prompt_time(form, chunk):
    assert form.step_ps(StepShape((chunk,), 0, 0)) > form.host.step_ps + form.host.prompts_ps


def test_prompt_attention_is_equal_in_one_chunk_or_two():
    form = form_of("llama-3.1-8b", "h100", 1, "vllm")
    (attention,) = form.prefill
    whole = attention.chunk_ps(Chunk(16384, 0), 1)
    halves = attention.chunk_ps(Chunk(8192, 0), 1) + attention.chunk_ps(Chunk(8192, 8192), 1)
    assert halves == pytest.approx(whole, rel=1e-6)


def test_activation_time_counts_one_read_and_one_write():
    device, model = named_device("h100"), named_model("llama-3.1-8b")
    kernels = Kernels(RoofTables(device, "vllm"), device, model, ModelSplit(2, 1, 1))
    norms, gate_up_product, rotated = 8 * 4096, 3 * 14336 // 2, 3 * (4096 + 2 * 1024) // 2
    moved = 2 * 32 * (norms + gate_up_product + rotated)
    expected = 1e6 * 100 * moved / (0.8 * device.bandwidth_bytes_per_s)
    assert _elementwise(kernels)(100) == pytest.approx(expected)


def test_measured_kernel_points_are_reproduced_to_the_picosecond():
    form = form_of("llama-3.1-8b", "h100", 1, "vllm")
    (sheet,) = form.decode
    for batch, line in zip(sheet.batches, sheet.lines, strict=True):
        for context, ps in zip(line.x, line.ps, strict=True):
            assert form._attention_ps(batch, batch * context) == ps


def test_step_time_falls_with_tensor_parallelism():
    one, four = (build("llama-3.1-8b", "h100", tp) for tp in (1, 4))
    shape = decode(64, 64 * 4096)
    assert four.step_ps(shape) < one.step_ps(shape)


def test_experts_compute_the_tokens_of_all_data_parallel_ranks():
    one = build("minimax-m2", "b200", 8, expert_parallel=True)
    eight = build("minimax-m2", "b200", 1, dp=8, expert_parallel=True)
    shape = decode(64, 64 * 1024)
    assert eight.step_ps(shape) > one.step_ps(shape)


def test_kernel_step_time_is_scaled_and_shifted_by_a_correction():
    form = form_of("qwen3-32b", "h100", 2, "sglang")
    shape = decode(16, 16 * 900)
    corrected = form.corrected(Correction(5_000_000, 7_000, 0, 2_000_000))
    expected = 2 * form.step_ps(shape) + 5_000_000 + 16 * 7_000
    assert corrected.step_ps(shape) == pytest.approx(expected, rel=1e-6)


def test_kernel_tables_have_a_measured_domain():
    form = form_of("llama-3.1-8b", "h100", 1, "vllm")
    assert not form.outside_domain(decode(64, 64 * 8192))
    assert form.outside_domain(decode(1, 10**6))
    assert form.outside_domain(decode(5000, 5000))
    assert form.outside_domain(StepShape((Chunk(10**6, 0),), 0, 0))


@pytest.mark.parametrize(
    ("model", "device", "options", "message"),
    [
        ("llama-3.1-8b", "v100-16gb", {}, "no kernels of vllm were measured on this device"),
        ("deepseek-v4-flash", "h100", {}, "no kernels of this model's attention"),
        ("llama-3.1-8b", "h100", {"overhead_us": -1e6}, "more than the shortest step"),
        ("llama-3.1-8b", "h100", {"tables": "nowhere"}, "no kernels of vllm"),
    ],
)
def test_model_without_measured_kernels_is_refused_by_name(model, device, options, message):
    with pytest.raises(InputError, match=message):
        build(model, device, **options)


def test_result_names_its_kernel_tables():
    tables = {
        "model": {"name": "llama-3.1-8b"},
        "device": {"name": "h100"},
        "allocator": [{"kind": "radix"}],
        "scheduler": {"kind": "sglang"},
        "step_time": {"kind": "kernels"},
    }
    requests = [Request(str(at), 0, 100, 5) for at in range(3)]
    result = kvsim.simulate(tables, requests)
    assert "h100-sglang" in result.scenario["provenance"]["step_time"]
    again = kvsim.simulate(result.scenario, requests)
    assert again.runs[0].summary["tpot_s"] == result.runs[0].summary["tpot_s"]


def test_host_time_is_taken_from_a_model_with_as_many_layers():
    device = named_device("h200")
    deep, flat = (find_model(f"llama-3.1-{size}-FP8", offline=True) for size in ("70b", "8b"))
    of_deep, of_flat = (host_cost("vllm", "0.12.0", device, each) for each in (deep, flat))
    assert of_deep != of_flat
    assert of_deep == host_cost("vllm", "0.11.0", device, deep)


def test_constant_expert_host_time_is_divided_by_expert_gpus():
    model, device = find_model("qwen3-235b-a22b", "model", offline=True), named_device("h200")
    for tp in (2, 4):
        options, hardware = KernelOptions(), Hardware(model, device, tp, engine="vllm")
        plain, more = (
            options.build(hardware, NOTHING._replace(experts_us=us)).step_ps(decode(8, 800))
            for us in (0.0, 100.0)
        )
        assert more - plain == round(100 * model.num_layers / tp * 1e6)


def test_multi_gpu_step_adds_worker_time():
    model, device = named_model("llama-3.1-8b"), named_device("h200")
    for tp, copies, waits in ((1, 1, 0), (1, 2, 0), (2, 1, 1), (8, 1, 1)):
        options = KernelOptions()
        hardware = Hardware(model, device, tp, data_parallel_size=copies, engine="vllm")
        plain, more = (
            options.build(hardware, NOTHING._replace(workers_us=us)).step_ps(decode(8, 800))
            for us in (0.0, 100.0)
        )
        assert more - plain == waits * round(100 * 1e6)
