"""Bounds of every step time over models, devices and engines, and the faults reported."""

import os

import numpy as np
import pytest
from support.each import check_each

from kvsim.device import device_names, named_device
from kvsim.model import model_names, named_model
from kvsim.model.find import find_model
from kvsim.plumbing.errors import InputError
from kvsim.step import StepShape
from kvsim.step_time import STEP_TIMES
from kvsim.step_time.correction import Correction
from kvsim.step_time.kernels.gate import fault
from kvsim.step_time.kernels.missing import NotMeasured
from kvsim.step_time.kernels.steady import steady
from kvsim.step_time.options import Hardware

EVERY = 97  # of all pairs of a model and a device; `KVSIM_GATE_EVERY=1` goes through all of them


def pairs():
    names, devices = sorted(model_names()), sorted(device_names())
    every = int(os.environ.get("KVSIM_GATE_EVERY", EVERY))
    both = [(model, device) for model in names for device in devices]
    return [(*pair, "sglang" if at % 2 else "vllm") for at, pair in enumerate(both[::every])]


@pytest.mark.parametrize("part", range(8))
def test_every_catalogue_step_is_within_its_bounds(part):
    check_each(pairs()[part::8], check_pair)


def check_pair(pair):
    name, device, engine = pair
    hardware = Hardware(named_model(name), named_device(device), engine=engine)
    kinds = []
    for kind in ("kernels", "fitted"):
        try:
            form = STEP_TIMES.parse({"kind": kind}, "step_time").build(hardware)
        except (NotMeasured, InputError):
            continue
        kinds.append(kind)
        assert fault(form, hardware) == ""
    auto = STEP_TIMES.parse({"kind": "auto"}, "step_time").build(hardware)
    assert auto.step_ps(StepShape((), 1, 256)) > 0


def test_spoiled_fp8_tables_are_replaced_by_the_roofline():
    """Its table has fp8 products in blocks that take seconds (vLLM 0.27)."""
    hardware = Hardware(
        find_model("Qwen/Qwen3-30B-A3B-FP8", offline=True), named_device("rtx-pro-6000")
    )
    form = STEP_TIMES.parse({"kind": "kernels"}, "step_time").build(hardware)
    assert "gemm in fp8_block" in form.source
    assert form.step_ps(StepShape((), 1, 1000)) < 20e9


@pytest.mark.parametrize(
    ("scale_ppm", "said"), [(10_000, "its bytes alone"), (100_000_000, "more than 20 times")]
)
def test_step_time_outside_its_bounds_is_named(scale_ppm, said):
    hardware = Hardware(named_model("llama-3.1-8b"), named_device("h100"))
    form = STEP_TIMES.parse({"kind": "kernels"}, "step_time").build(hardware)
    host = form.host
    form = form.corrected(Correction(scale_ppm=scale_ppm))
    form.host = host
    assert said in fault(form, hardware)


def test_kernel_times_are_smoothed_to_be_monotone():
    random = np.random.default_rng(0)
    x = np.array([1, 2, 3, 5, 8, 13, 64])
    for _ in range(50):
        found = steady(x, random.uniform(0.1, 9, len(x)))
        assert (np.diff(found) >= -1e-12).all()
        assert (np.diff(found / x) <= 1e-12).all()
    fine = 3 + 2 * x
    assert steady(x, fine) == pytest.approx(fine)
