"""`--step-time kernels`: the composed step times of a recorded run, which a fit corrects."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvsim.device import named_device
from kvsim.model import named_model
from kvsim.plumbing.errors import InputError
from kvsim.step import Chunk, StepShape
from kvsim.step_time.correction import Correction
from kvsim.step_time.kernels.form import KernelOptions
from kvsim.step_time.options import Hardware
from kvsim.validate.run.step_times import step_times_of
from kvsim.validate.served import hardware_of


def run(**changes: Any) -> Any:
    meta = {
        "model": "llama-3.1-8b",
        "gpu": "H100",
        "tensor_parallel_size": 1,
        "peer_gb_per_s": None,
        "engine": "vLLM 0.11.0",
    }
    return cast(Any, SimpleNamespace(meta=SimpleNamespace(**meta | changes)))


def test_correction_scales_kernel_times_and_adds_a_constant():
    times = step_times_of(run(), "kernels")
    assert (times.label, times.reported["fit"]) == ("kernels", "kernels")
    assert "h100-vllm" in times.source
    shape = StepShape((), 8, 8000)
    plain, slower = (
        times.corrected(each).step_ps(shape)
        for each in (Correction(), Correction(constant_ps=10**9, scale_ppm=1_500_000))
    )
    assert slower == pytest.approx(1.5 * plain + 10**9, rel=1e-6)


def test_hardware_has_the_engine_and_version_of_meta_json():
    def engine_of(**changes: Any) -> tuple[str | None, str | None]:
        hardware = hardware_of(run(**changes).meta)
        return hardware.engine, hardware.engine_version

    assert engine_of() == ("vllm", "0.11.0")
    assert engine_of(engine="kvsim 0.2.0") == (None, None)


def test_peer_gb_per_s_sets_the_bandwidth_of_all_reduces():
    def step_ps(tokens: int, **changes: Any) -> int:
        times = step_times_of(run(gpu="A100-80GB", tensor_parallel_size=2, **changes), "kernels")
        return times.corrected(Correction()).step_ps(StepShape((Chunk(tokens, 0),), 0, 0))

    slow, slower = (step_ps(2048, peer_gb_per_s=rate) for rate in (4, 2))
    assert slow > 1.5 * step_ps(2048)
    sent = 2 * 32 * 2048 * 4096 * 2  # bytes of two all-reduces a layer, each sent once
    assert (slower - slow) / 1e12 == pytest.approx(sent / 2e9 - sent / 4e9, rel=1e-3)


def test_gpu_without_kernel_tables_is_refused():
    with pytest.raises(InputError, match=r"no kernels of vllm were measured.*fitted"):
        step_times_of(run(gpu="RTX 4090"), "kernels")


def test_all_reduce_over_two_servers_uses_the_network():
    def step_ps(tp: int, gpus_per_node: int) -> int:
        model, device = named_model("deepseek-v3"), named_device("h100")
        hardware = Hardware(model, replace(device, gpus_per_node=gpus_per_node), tp)
        return KernelOptions().build(hardware).step_ps(StepShape((), 4, 4000))

    assert step_ps(8, 8) == step_ps(8, 72)
    # DeepSeek-R1, SGLang 0.5.8, 4 clients: 18.67 ms on 2 x 8 H100; kernels of one server take 9.6
    assert (step_ps(16, 8) - step_ps(16, 16)) / 1e9 == pytest.approx(9.1, abs=1.5)
