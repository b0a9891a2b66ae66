"""Kernels by fitted rooflines: limits by theory, devices left out, steps and their runs."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scenarios import steady

import kvsim
from kvsim.device import Device, named_device
from kvsim.model import named_model
from kvsim.model.find import find_model
from kvsim.plumbing.errors import InputError
from kvsim.step import Chunk, StepShape
from kvsim.step_time import STEP_TIMES
from kvsim.step_time.kernels.composed import KernelSteps
from kvsim.step_time.kernels.roofs import ROOFS_FILE, RoofTables, _fitted
from kvsim.step_time.kernels.tables import KernelLine
from kvsim.step_time.options import Hardware

A100, H20 = named_device("a100-40gb"), named_device("h20")


def build(name: str, device: Device, tp: int = 1, kind: str = "fitted", **options: Any) -> Any:
    hardware = Hardware(find_model(name, "model", offline=True), device, tp, engine="vllm")
    return STEP_TIMES.parse({"kind": kind, **options}, "step_time").build(hardware)


def constants(kind: str, dtype: str) -> list[float]:
    rows = [each for each in _fitted()["roofs"] if each["engine"] == "vllm"]
    return next(
        each["constants"] for each in rows if (each["kind"], each["dtype"]) == (kind, dtype)
    )


def test_large_gemm_is_bound_by_weight_bytes_or_flops():
    start_us, memory, compute, _ = constants("gemm", "bfloat16")
    line = large_product(A100)
    weights_us = 1e6 * 2 * 16384**2 / A100.bandwidth_bytes_per_s / memory
    assert line.at(1) == pytest.approx(start_us + weights_us, rel=0.02)
    flops_us = 1e6 * 2 * 65536 * 16384**2 / A100.fp16_flops / compute
    assert line.at(65536) == pytest.approx(start_us + flops_us, rel=0.02)


def large_product(device: Device) -> KernelLine:
    family = RoofTables(device, "vllm").required("gemm", ("bfloat16",))
    return family.between((16384, 16384), lambda shape, x: 0.0)


def share_of_peak(device: Device) -> float:
    return 2 * 65536 * 16384**2 / device.fp16_flops / (large_product(device).at(65536) / 1e6)


# Products of 16-bit matrices that users of such GPUs measured with torch, by the datasheet's peak:
# RTX 4090 at 160 to 173 TFLOP/s, H20 at 142. By the same script H100, A100 and B200 have 0.75 to
# 0.85.
@pytest.mark.parametrize(("name", "measured"), [("rtx-4090", 0.985), ("h20", 0.958)])
def test_gpus_with_throttled_tensor_cores_come_nearer_to_peak(name, measured):
    device = named_device(name)
    plain = share_of_peak(replace(device, tensor_headroom=1.0))
    assert plain == pytest.approx(constants("gemm", "bfloat16")[2], rel=0.02)
    assert plain + 0.1 < share_of_peak(device) < 1
    assert share_of_peak(device) == pytest.approx(measured, rel=0.1)
    assert share_of_peak(replace(device, tensor_headroom=1e6)) == pytest.approx(1, rel=0.01)


FORMS: list[KernelSteps] = [
    build("llama-3.1-8b", H20),
    build("gpt-oss-120b", named_device("a100-40gb"), 4),
    build("deepseek-v3", named_device("mi300x"), 8),
]


@settings(deadline=None)
@given(st.sampled_from(FORMS), st.integers(1, 2000), st.integers(0, 10**6), st.integers(0, 10**5))
def test_every_step_of_a_run_equals_the_single_step(form, num_decode, extra, offset):
    context = num_decode + extra
    run = form.decode_run(num_decode, context)
    step = min(offset, 10**6 if run.steps is None else run.steps - 1)
    alone = form.step_ps(StepShape((), num_decode, context + step * num_decode))
    assert alone == run.first_ps + run.growth_ps * step


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 500), st.integers(1, 20_000), st.floats(1.05, 8))
def test_a_faster_device_is_never_slower(batch, mean, factor):
    faster = replace(
        H20,
        bandwidth_bytes_per_s=round(H20.bandwidth_bytes_per_s * factor),
        fp16_flops=round(H20.fp16_flops * factor),
        fp8_flops=round(H20.fp8_flops * factor),
    )
    shapes = [StepShape((), batch, batch * mean), StepShape((Chunk(mean, 0),), 0, 0)]
    plain, swift = build("llama-3.1-8b", H20), build("llama-3.1-8b", faster)
    for shape in shapes:
        assert plain.step_ps(shape) / factor < swift.step_ps(shape) < plain.step_ps(shape)


def test_user_defined_gpu_and_link_are_timed():
    own = replace(H20, name="my-gpu", peer_bytes_per_s=10**10)
    shape = StepShape((Chunk(4096, 0),), 0, 0)
    slow, swift = (build("llama-3.1-8b", each, 4).step_ps(shape) for each in (own, H20))
    sent = 1.5 * 2 * 32 * 4096 * 4096 * 2  # bytes: a ring of four, two all-reduces a layer
    assert slow - swift > 0.5e12 * sent / 10**10


def test_four_bit_weights_save_reading_time_but_no_compute_time():
    for device, kind in ((named_device("h100"), "kernels"), (H20, "fitted")):
        four, plain = (build(f"llama-3.1-8b{end}", device, kind=kind) for end in ("-AWQ", ""))
        token, prompt = StepShape((), 1, 100), StepShape((Chunk(8192, 0),), 0, 0)
        assert four.step_ps(token) < 0.6 * plain.step_ps(token)
        assert four.step_ps(prompt) == pytest.approx(plain.step_ps(prompt), rel=0.05)


def test_shipped_roofline_fit_reports_left_out_device_errors():
    names = {path.stem.rpartition("-")[::2] for path in ROOFS_FILE.parent.glob("*.npz")}
    for engine, errors in _fitted()["left_out"].items():
        assert {(device, engine) for device in errors["by_device"]} <= names
        assert 0.03 < errors["median"] < 0.15 < errors["mean"] < 0.3
    result = kvsim.simulate(steady(5) | {"device": {"name": "h20"}})
    source = result.scenario["provenance"]["step_time"]
    median = _fitted()["left_out"]["vllm"]["median"]
    assert f"are off by {median:.0%} in the median".replace("%", " %") in source
    assert "h20" in source


def test_dtype_measured_on_no_device_is_refused():
    model = replace(named_model("llama-3.1-8b"), torch_dtype="float32")
    options = STEP_TIMES.parse({"kind": "fitted"}, "step_time")
    with pytest.raises(InputError, match="no gemm was measured in float32"):
        options.build(Hardware(model, H20))
