"""Slices of a GPU: the shares that NVIDIA's guide gives to each profile."""

import json

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.device import named_device
from kvsim.plumbing.errors import InputError


@pytest.mark.parametrize(
    ("name", "eighths", "sevenths"),
    [
        ("h100-1g.10gb", 1, 1),
        ("h100-1g.20gb", 2, 1),
        ("NVIDIA H100 MIG 2g.20gb", 2, 2),
        ("a100-40gb-3g.20gb", 4, 3),
        ("NVIDIA A100-SXM4-80GB MIG 4g.40gb", 4, 4),
        ("h200-1g.18gb", 1, 1),
        ("h200-3g.71gb", 4, 3),
        ("b200-1g.23gb", 1, 1),
        ("b200-7g.180gb", 8, 7),
    ],
)
def test_mig_slice_has_its_share_of_the_gpu(name: str, eighths: int, sevenths: int) -> None:
    part = named_device(name)
    whole = named_device(part.name.rpartition("-")[0])
    assert part.memory_bytes == whole.memory_bytes * eighths // 8
    assert part.bandwidth_bytes_per_s == whole.bandwidth_bytes_per_s * eighths // 8
    assert part.fp16_flops == whole.fp16_flops * sevenths // 7
    assert part.peer_bytes_per_s == whole.host_bytes_per_s
    assert named_device(part.name) == part


@pytest.mark.parametrize("name", ["h100-5g.40gb", "h100-3g.20gb", "l4-1g.3gb", "h100-2g.10gb"])
def test_slices_that_no_driver_makes_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="no such slice"):
        named_device(name)


def test_a_pool_is_sized_on_a_slice() -> None:
    pools = []
    for device in "h100", "h100-3g.40gb":
        flags = ["memory", "qwen3-8b", "--device", device, "--max-model-len", "8192", "--json"]
        said = CliRunner().invoke(app, flags)
        assert said.exit_code == 0, said.output
        pools.append(json.loads(said.stdout))
    assert pools[1]["device_bytes"] == pools[0]["device_bytes"] // 2
    assert 0 < pools[1]["pool_bytes"] < pools[0]["pool_bytes"] / 2
