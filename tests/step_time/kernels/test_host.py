"""The host's part of a server that has no constants of its own."""

import pytest

from kvsim.device import named_device
from kvsim.model import named_model
from kvsim.model.find import find_model
from kvsim.step import Chunk, StepShape
from kvsim.step_time.kernels.form import KernelOptions
from kvsim.step_time.kernels.host import best_entry, host_cost
from kvsim.step_time.kernels.prior import ServerKind, prior_host
from kvsim.step_time.options import Hardware

H100 = named_device("h100")
LABELS = {"engine": "vllm", "kind": "llama", "layers": 32, "method": "", "device": "h100"}
ANY = {"engine": "vllm", "kind": "llama", "sequence_us": 1}
BEFORE = {**ANY, "before": "0.14.0", "sequence_us": 2}
WEIGHTS = {**ANY, "method": "", "sequence_us": 3}
DEVICE = {"engine": "vllm", "device": "h100", "sequence_us": 4}


@pytest.mark.parametrize(
    ("version", "wanted"), [("0.13.0", BEFORE), ("0.14.0", ANY), ("0.33.0", ANY), (None, ANY)]
)
def test_host_entry_with_before_applies_to_older_versions_only(version, wanted):
    assert best_entry([ANY, BEFORE, DEVICE], LABELS, version) == wanted


@pytest.mark.parametrize("version", ["0.11.0", "0.20.0", None])
def test_host_entry_for_the_same_weights_precedes_one_for_the_version(version):
    assert best_entry([BEFORE, ANY, DEVICE, WEIGHTS], LABELS, version) == WEIGHTS


@pytest.mark.parametrize("device", ["h100", "a100-80gb", "rtx-4090"])
def test_host_time_per_sequence_is_less_with_async_scheduling(device):
    model, of = named_model("llama-2-7b"), named_device(device)
    before, after, newest = (
        prior_host(ServerKind("vllm", version, 1, eager=False), of, model)
        for version in ("0.13.0", "0.14.0", None)
    )
    assert before.served == "kind"
    assert after == newest
    assert before.sequence_us > 3 * after.sequence_us > 0
    assert before.step_us == after.step_us


def test_borrowed_host_time_scales_with_layers():
    device = named_device("b200")
    dense, deep = named_model("llama-3.1-8b"), named_model("llama-3.1-70b")
    kind = ServerKind("sglang", None, 1, eager=False)
    of_dense, of_deep = (prior_host(kind, device, model) for model in (dense, deep))
    assert of_deep.step_us == pytest.approx(of_dense.step_us * 80 / 32)
    assert of_deep.prompt_launch_us == pytest.approx(of_dense.prompt_launch_us * 80 / 32)
    shared = prior_host(kind._replace(gpus=8), device, dense)
    assert shared.step_us > of_dense.step_us
    assert of_dense.launch_us == 0
    assert prior_host(kind._replace(eager=True), device, dense).launch_us > of_dense.step_us


def test_constants_of_one_server_apply_to_no_other_model():
    """Qwen3-235B-FP8 of H200 took 920 us a sequence; no other mixture of experts takes them."""
    for name in ("Qwen/Qwen3-30B-A3B-FP8", "Qwen/Qwen3-30B-A3B"):
        model = find_model(name, offline=True)
        assert host_cost("sglang", None, named_device("h100"), model) is None


def test_prompt_step_takes_the_longer_of_kernels_and_launches():
    form = KernelOptions(engine="sglang").build(Hardware(named_model("llama-3.1-8b"), H100))
    host = form.host
    short, long = (StepShape((Chunk(tokens, 0),), 0, 0) for tokens in (16, 65_536))
    assert form.step_ps(short) == host.prompt_launch_ps + host.step_ps + host.sequence_ps
    took_ps = form.step_ps(long)
    host.prompt_launch_ps = 0
    assert form.step_ps(long) == took_ps
    assert form.step_ps(short) < took_ps


def test_eager_step_of_a_small_model_takes_at_least_its_launch_time():
    """Launches take over 20 times as long as reading the weights of a 0.5B model; such a large
    ratio is not refused.
    """
    model = find_model("Qwen/Qwen2.5-0.5B-Instruct", offline=True)
    form = KernelOptions(engine="sglang", enforce_eager=True).build(Hardware(model, H100))
    assert form.step_ps(StepShape((), 1, 100)) >= form.host.launch_ps > 0
