"""GPUs by name, with figures replaced, or described by the user."""

import pytest
from support.each import check_each

from kvsim.device import DeviceOptions, device_names, named_device
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB


def test_every_catalogue_gpu_is_complete_and_plausible():
    check_each(device_names(), check_entry)


def check_entry(name):
    device = named_device(name)
    assert device.source
    assert 7 * GIB < device.memory_bytes < 300 * GIB
    if name.startswith("apple-"):  # no units for matrices alone, and the memory is the host's
        assert device.fp32_flops == device.fp16_flops == device.fp8_flops
        assert device.host_bytes_per_s == device.bandwidth_bytes_per_s
        return
    assert device.fp32_flops < device.fp16_flops <= device.fp8_flops
    assert device.host_bytes_per_s < device.bandwidth_bytes_per_s
    # All of them need tens of FLOPs a byte to be bound by compute.
    assert device.fp16_flops / device.bandwidth_bytes_per_s > 30


@pytest.mark.parametrize(
    ("name", "gigabytes", "bandwidth", "tflops"),
    [
        ("a100-40gb", 40, 1555, 312),
        ("a100-80gb", 80, 2039, 312),
        ("h100", 80, 3350, 989.4),
        ("h200", 141, 4800, 989.4),
        ("l4", 24, 300, 121),
        ("l40s", 48, 864, 362),
        ("a10g", 24, 600, 70),
        ("rtx-4090", 24, 1008, 165.2),
        ("mi300x", 192, 5300, 1307.4),
        ("rtx-3090", 24, 936, 71),
        ("rtx-4060", 8, 272, 30.2),
        ("rtx-5070-ti", 16, 896, 87.9),
        ("rtx-5080", 16, 960, 112.6),
        ("rtx-5090", 32, 1792, 209.5),
        ("rtx-pro-6000", 96, 1792, 503.8),
        ("h20", 96, 4000, 148),
        ("gh200", 96, 4000, 989.4),
        ("gb200", 186, 8000, 2500),
        ("b300", 288, 8000, 2250),
        ("gb10", 128, 273, 125),
        ("t4", 16, 320, 65),
        ("mi325x", 256, 6000, 1307.4),
        ("mi355x", 288, 8000, 2516.6),
    ],
)
def test_device_catalogue_equals_the_datasheets(name, gigabytes, bandwidth, tflops):
    device = named_device(name)
    assert 0.85 < device.memory_bytes / (gigabytes * 2**30) <= 1.0
    assert device.bandwidth_bytes_per_s == bandwidth * 10**9
    assert device.fp16_flops == round(tflops * 10**12)


@pytest.mark.parametrize("written", ["H100", "NVIDIA H100", "h100_sxm5_80gb"])
def test_device_names_are_matched_in_common_spellings(written):
    assert named_device(written) == named_device("h100")


@pytest.mark.parametrize(
    ("torch_name", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("Tesla V100-SXM2-32GB", "v100-32gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
    ],
)
def test_device_names_of_torch_are_matched(torch_name, name):
    assert named_device(torch_name).name == name


def test_replaced_device_figures_are_named_as_replaced():
    device = DeviceOptions.parse({"name": "h200", "memory_bytes": 10**11}, "device").build()
    assert device.memory_bytes == 10**11
    assert device.bandwidth_bytes_per_s == named_device("h200").bandwidth_bytes_per_s
    assert "memory_bytes as given" in device.source


def test_user_defined_gpu_has_its_given_figures():
    table = {"name": "mine", "memory_gib": 16, "bandwidth_gb_per_s": 500, "fp16_tflops": 80}
    device = DeviceOptions.parse(table, "device").build()
    assert (device.name, device.memory_bytes) == ("mine", 16 * GIB)
    assert device.flops(16) == device.flops(8) == 80 * 10**12
    assert device.flops(32) == 10 * 10**12


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": "h10"}, "did you mean"),
        ({"name": "mine", "memory_gib": 16}, "add bandwidth_gb_per_s, fp16_tflops"),
        ({"name": "h100", "memory_gib": 16, "memory_bytes": 5}, "at most one of memory"),
        ({"name": "h100", "memory": 16}, "unknown key"),
        ({"name": "h100", "memory_gib": -1}, r"device\.memory_gib"),
    ],
)
def test_invalid_device_options_are_refused(table, message):
    with pytest.raises(InputError, match=message):
        DeviceOptions.parse(table, "device").build()
