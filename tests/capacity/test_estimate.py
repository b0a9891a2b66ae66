"""The items of the pool against those that engines logged one by one, and against closed forms.

Figures of vLLM 0.19.0 on H100s at 8,192 tokens a step: DEBUG logs of github.com/llm-d-incubation/
llm-d-planner, accuracy/results (Apache-2.0); others with their source beside them.
"""

from dataclasses import replace

import pytest

from kvsim.capacity.deployment import Deployment
from kvsim.capacity.estimate.activations import activation_bytes
from kvsim.capacity.estimate.cuda_graphs import capture_sizes, cuda_graph_bytes
from kvsim.capacity.estimate.items import estimate
from kvsim.capacity.estimate.non_torch import non_torch_bytes
from kvsim.capacity.estimate.towers import kept_bytes, peak_bytes
from kvsim.capacity.estimate.weights import weight_bytes
from kvsim.capacity.held_out import ERRORS, expected_error
from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.sizing import size
from kvsim.capacity.stage import stages
from kvsim.device import named_device
from kvsim.model import ModelOptions
from kvsim.model.layers import Absent, Dense, Layer
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB
from kvsim.vllm.versions import VERSIONS, vllm_version


def deployment(model, version="0.19.0", tp=1, seqs=1024, tokens=8192, length=8192, **more):
    flashinfer = more.pop("flashinfer", None)
    options = ModelOptions(name=model, tensor_parallel_size=tp, max_model_len=length, **more)
    built, of_engine = options.build(offline=True), vllm_version(version).sizing
    it = Deployment(built, options, named_device("h100"), of_engine, length, seqs, tokens)
    return it._replace(flashinfer_sampler=flashinfer)


def whole(it):
    return stages(it.model.layers, 1)[0]


# model, tensor parallel GPUs, GiB of weights and of the torch peak above them.
LOGGED = [
    ("deepseek-v2-lite", 1, 29.43, 1.93),
    ("gemma-2-27b", 1, 50.72, 3.66),
    ("gemma-2-2b", 1, 4.9, 3.62),
    ("gemma-3-12b", 1, 23.31, 3.94),
    ("granite-3.1-8b", 1, 15.25, 0.85),
    ("llama-3.1-8b", 1, 14.99, 1.89),
    ("llama-4-scout", 4, 53.12, 3.19),
    ("phi-4", 1, 27.39, 1.52),
    ("mixtral-8x7b", 2, 43.51, 1.21),
    ("qwen2.5-72b", 4, 34.01, 2.29),
    ("gpt-oss-20b", 1, 13.64, 2.87),
    ("gpt-oss-20b", 2, 7.01, 2.87),
    ("qwen1.5-moe-a2.7b", 1, 26.67, 2.47),
    ("qwen3-8b", 1, 15.27, 2.21),
]


@pytest.mark.parametrize(("model", "tp", "weights", "peak"), LOGGED)
def test_weights_and_activation_peaks_equal_logged_ones(model, tp, weights, peak):
    it = deployment(model, tp=tp)
    assert weight_bytes(it, whole(it)) / GIB == pytest.approx(weights, rel=0.015)
    assert activation_bytes(it, whole(it)) / GIB == pytest.approx(peak, abs=0.1)


@pytest.mark.parametrize(
    ("model", "version", "seqs", "tokens", "length", "peak"),
    [
        # The version alone: Qwen3-14B on an H100, llm-d-planner's sweep of versions.
        ("qwen3-14b", "0.15.0", 1024, 8192, 8192, 5.64),
        ("qwen3-14b", "0.17.0", 1024, 8192, 8192, 2.23),
        # V0 profiles the whole length: github.com/vllm-project/vllm/issues/10517 and pull/10511.
        ("llama-3.1-8b", "V0", 256, 2048, 29_000, 2.99),
        ("llama-3-8b", "V0", 256, 2048, 8192, 1.26),
    ],
)
def test_activation_peak_follows_the_engine_version(model, version, seqs, tokens, length, peak):
    it = deployment(model, version, seqs=seqs, tokens=tokens, length=length)
    assert activation_bytes(it, whole(it)) / GIB == pytest.approx(peak, rel=0.06)


def test_without_flashinfer_old_versions_sort_the_logits():
    """vllm#21348: the peak of 0.9.2 without FlashInfer is that of 0.15, which sorts too. In
    flashinfer#1180 the pool of 0.9 is 1.51 GiB smaller so, for a model that is not named.
    """
    model = "qwen3-235b-a22b"
    given = {"tp": 4, "seqs": 1024}
    sorts, images = (deployment(model, "0.9.2", **given, flashinfer=on) for on in (None, True))
    more = activation_bytes(sorts, whole(sorts)) - activation_bytes(images, whole(images))
    assert more == 28 * 1024 * 151_936
    newer = deployment(model, "0.12", **given)
    assert activation_bytes(sorts, whole(sorts)) == activation_bytes(newer, whole(newer))


@pytest.mark.parametrize(
    ("version", "asked", "samples"),
    [
        ("V0", True, False),
        ("0.9.2", None, False),
        ("0.9.2", True, True),
        ("0.15", None, False),
        ("0.15", True, True),
        ("0.21", None, True),
        ("0.33", False, False),
    ],
)
def test_flashinfer_sampling_depends_on_version_and_option(version, asked, samples):
    assert deployment("qwen3-8b", version, flashinfer=asked).on_flashinfer is samples


def test_flashinfer_samples_on_nvidia_alone():
    """A pool of an AMD GPU is sized with the sort of torch, whatever the version's default is."""
    amd = deployment("qwen3-8b", "0.33")._replace(device=named_device("mi300x"))
    assert not amd.on_flashinfer
    memory = MemoryOptions(
        gpu_memory_utilization=0.9, engine_version="0.33", flashinfer_sampler=True
    )
    with pytest.raises(InputError, match=r"memory\.flashinfer_sampler"):
        size(amd.model, amd.device, memory, amd.options, 16)


@pytest.mark.parametrize(
    ("model", "version", "tp", "logged"),
    [
        ("llama-3.1-8b", "0.19.0", 1, 0.25),
        ("llama-3.1-8b", "0.19.0", 2, 2.07),
        ("llama-3.1-8b", "0.19.0", 4, 2.13),
        ("mixtral-8x7b", "0.19.0", 2, 2.07),
        ("qwen2.5-72b", "0.19.0", 4, 2.21),
        # What the pool leaves: github.com/vllm-project/vllm/issues/21348, beside LMCache.
        ("qwen3-235b-a22b", "0.9.2", 4, 2.46),
    ],
)
def test_non_torch_memory_with_nvlink_equals_logged_one(model, version, tp, logged):
    it = deployment(model, version, tp=tp)
    assert non_torch_bytes(it) / GIB == pytest.approx(logged, abs=0.11)


def test_non_torch_memory_depends_on_link_version_and_graphs():
    def gib(version, device="h100", tp=2, **changes):
        it = deployment("llama-3.1-8b", version, tp=tp, **changes.pop("options", {}))
        return non_torch_bytes(it._replace(device=named_device(device), **changes)) / GIB

    # NCCL's buffers are charged before 0.11; the fused all-reduce needs compiled graphs.
    assert gib("0.10.1") - gib("0.11.0") == pytest.approx(0.92 + 1 / 64)
    assert gib("0.19") - gib("0.19", enforce_eager=True) == 1.5
    assert gib("0.22") - gib("0.22", enforce_eager=True) == 0.5
    assert gib("0.19", tp=1, options={"pipeline_parallel_size": 2}) == gib("0.19", tp=1)
    assert gib("0.19", options={"pipeline_parallel_size": 2}) == gib("0.19", enforce_eager=True)
    # GPUs without NVLink 4, and those that do not run CUDA, have the figures by version.
    assert gib("0.9", "l40s", tp=8) == pytest.approx(0.13)
    for device in ("a100-80gb", "mi300x"):
        assert gib("0.9", device, tp=4) == gib("0.9", device) == pytest.approx(0.55)
        assert gib("0.19", device) == gib("0.20", device) == pytest.approx(0.7)


# Live bytes counted op by op in the towers of vLLM 0.33's wheel, one image of 16,384 tokens:
# GiB at the peak with its pixels, and of the embeddings that stay.
@pytest.mark.parametrize(
    ("model", "peak", "kept"),
    [
        ("qwen3-vl-2b", 1.886, 0.25),
        ("qwen3-vl-8b", 2.262, 0.5),
        ("qwen2.5-vl-3b", 1.878, 0.0625),
        ("qwen2.5-vl-7b", 1.878, 0.109375),
    ],
)
def test_vision_tower_memory_equals_vllm_tensor_counts(model, peak, kept):
    it = deployment(model, "0.33", seqs=1, tokens=2048)
    assert peak_bytes(it, whole(it)) / GIB == pytest.approx(peak, rel=0.005)
    assert kept_bytes(it, whole(it)) / GIB == kept
    # Little is sampled: the tower has the peak, but for the scratch.
    assert activation_bytes(it, whole(it)) / GIB == pytest.approx(peak + 0.05, rel=0.005)


def test_vision_tower_memory_depends_on_stage_gpus_runner_and_step():
    it = deployment("qwen3-vl-8b", "0.33")
    first, last = stages(it.model.layers, 2)
    assert peak_bytes(it, first) == peak_bytes(it, whole(it)) > 0
    assert peak_bytes(it, last) == kept_bytes(it, last) == 0
    # Two GPUs share queries, keys, values and feed-forward parts: 4 of the 8 widths.
    two = deployment("qwen3-vl-8b", "0.33", tp=2)
    shared = peak_bytes(it, whole(it)) - peak_bytes(two, whole(two))
    assert shared == 65_536 * 2 * 4 * 1152
    # The first runner keeps the pixels too; 32,768 tokens a step encode two images.
    older, longer = deployment("qwen3-vl-8b", "0.19"), deployment("qwen3-vl-8b", tokens=32_768)
    pixels = 65_536 * 2 * 3 * 2 * 16 * 16
    assert kept_bytes(older, whole(older)) - kept_bytes(it, whole(it)) == pixels
    assert kept_bytes(longer, whole(longer)) == 2 * kept_bytes(older, whole(older))
    # Towers that are not followed keep what is fitted; models without one keep nothing.
    gemma, text = deployment("gemma-3-12b"), deployment("qwen3-8b")
    assert peak_bytes(gemma, whole(gemma)) == 0 < kept_bytes(gemma, whole(gemma))
    assert kept_bytes(text, whole(text)) == 0


def test_language_model_only_leaves_out_the_tower_and_its_peak():
    seen = deployment("qwen3-vl-8b", "0.33", seqs=1, tokens=2048)
    text = deployment("qwen3-vl-8b", "0.33", seqs=1, tokens=2048, language_model_only=True)
    freed = weight_bytes(seen, whole(seen)) - weight_bytes(text, whole(text))
    assert freed == 2 * seen.model.tower_params > GIB
    assert peak_bytes(text, whole(text)) == kept_bytes(text, whole(text)) == 0
    assert activation_bytes(text, whole(text)) < activation_bytes(seen, whole(seen)) / 5


def test_only_v0_profiles_max_model_len():
    short, long = (deployment("llama-3.1-8b", "V0", length=n) for n in (16_384, 32_768))
    assert (short.profiled_tokens, long.profiled_tokens) == (16_384, 32_768)
    assert deployment("llama-3.1-8b", "V0", length=65_536).profiled_tokens == 8192
    assert deployment("llama-3.1-8b", "0.19", length=32_768).profiled_tokens == 8192


@pytest.mark.parametrize(
    ("seqs", "largest", "count"),
    [(1024, 512, 51), (1024, 1024, 83), (2048, 2048, 147), (4, 512, 4), (1, 512, 2)],
)
def test_cuda_graph_batch_sizes_equal_vllms(seqs, largest, count):
    """As the log counts them: PIECEWISE=51, 83 for gpt-oss, 147 where 2,048 are asked for."""
    sizes = capture_sizes(seqs, largest)
    assert len(sizes) == count
    assert sizes == sorted(set(sizes))
    assert sizes[-1] <= largest


def test_cuda_graphs_are_charged_by_version_unless_eager():
    def graphs(version, **changes):
        it = deployment("qwen3-8b", version)._replace(**changes)
        return cuda_graph_bytes(it, whole(it))

    assert graphs("0.19") == 0
    assert graphs("0.20") > 0
    assert graphs("0.20", enforce_eager=True) == 0
    # The second runner serves Qwen3 from 0.22 on, and estimates graphs from 0.29 on.
    assert graphs("0.22") == 0
    assert graphs("0.29") == graphs("0.20")


@pytest.mark.parametrize("model", ["qwen3.5-4b", "falcon-mamba-7b"])
def test_the_second_runner_serves_no_recurrent_layers_before_0_29(model):
    found = [deployment(model, version).on_second_runner for version in ("0.25", "0.28", "0.29")]
    assert found == [False, False, True]
    assert deployment("llama-3.1-8b", "0.25").on_second_runner


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [10]), (2, [5, 5]), (3, [3, 4, 3]), (4, [2, 3, 3, 2])]
)
def test_remainder_layers_go_to_stages_before_the_last(count, sizes):
    layers = tuple(Layer(Absent(), Dense(1), index) for index in range(10))
    found = stages(layers, count)
    assert [len(stage.layers) for stage in found] == sizes
    assert [layer for stage in found for layer in stage.layers] == list(layers)
    assert (found[0].first, found[-1].last) == (True, True)
    assert all(not stage.first for stage in found[1:])


def test_pipeline_stages_sum_to_the_whole_model():
    it = deployment("llama-3.1-8b")
    parts = [weight_bytes(it, stage) for stage in stages(it.model.layers, 4)]
    assert it.model.rotary_elements == it.model.max_position_embeddings * 128
    again = 3 * (it.model.rotary_elements + 4096) * 2  # positions, the final norm
    assert sum(parts) - again == weight_bytes(it, whole(it))


# vLLM's wheels 0.31.0 and 0.32.0: rows of cosines for a position of a video.
@pytest.mark.parametrize(
    ("model", "version", "rows"),
    [
        ("qwen3-vl-2b", "0.31.0", 4),
        ("qwen3-vl-2b", "0.32.0", 1),
        ("qwen3.5-4b", "0.19.0", 4),
        ("qwen3.5-4b", "0.33.0", 1),
        ("qwen2.5-vl-7b", "0.33.0", 4),
        ("qwen3-8b", "0.19.0", 1),
    ],
)
def test_video_models_have_longer_rotary_tables(model, version, rows):
    it = deployment(model, version=version)
    plain = it._replace(model=replace(it.model, mrope=False))
    more = weight_bytes(it, whole(it)) - weight_bytes(plain, whole(plain))
    rotated = {"qwen3.5-4b": 64}.get(model, 128)
    assert more == (rows - 1) * it.model.max_position_embeddings * rotated * 2


def test_experts_are_split_over_data_parallel_gpus():
    alone = deployment("qwen3-30b-a3b")
    shared = deployment("qwen3-30b-a3b", data_parallel_size=4, enable_expert_parallel=True)
    hidden = alone.model.hidden_size
    experts = sum(layer.feed_forward.weights(hidden, 1).expert for layer in alone.model.layers)
    saved = weight_bytes(alone, whole(alone)) - weight_bytes(shared, whole(shared))
    assert saved == 2 * experts * 3 // 4


def test_versions_are_ordered_and_found_by_name():
    since = [version.since for version in VERSIONS]
    assert since == sorted(set(since))
    for version in VERSIONS[1:]:
        assert vllm_version(f"{version.name}.1") is version
    assert vllm_version("0.33.0") is VERSIONS[-1]
    assert vllm_version("0.20.1rc1.dev16+g7a1eb8ac2").name == "0.20"
    with pytest.raises(InputError, match="not a version of vLLM"):
        vllm_version("latest")


@pytest.mark.parametrize(
    ("version", "device", "limits"),
    [
        ("V0", "h100", (256, 2048)),
        ("0.19", "h100", (1024, 8192)),
        ("0.19", "a100-80gb", (256, 2048)),
        ("0.8", "a100-80gb", (1024, 8192)),
        ("0.33", "b200", (1024, 16_384)),
        ("0.27", "b200", (1024, 8192)),
        ("0.33", "rtx-5090", (256, 2048)),
        ("0.33", "gb10", (256, 2048)),
    ],
)
def test_step_limits_depend_on_version_and_device(version, device, limits):
    gpu = named_device(device)
    assert vllm_version(version).sizing.default_limits(gpu.memory_bytes, gpu.name) == limits


def test_first_compilation_holds_a_copy_of_the_embedding():
    """vLLM 0.28 of Qwen3-14B on an L40S: 11.57 GiB and 75,824 tokens on its first start, beside
    27.52 GiB of weights. Later starts of another server have 1.2 GiB more.
    """
    first = deployment("qwen3-14b", "0.28", seqs=256, tokens=2048, length=40_960)._replace(
        device=named_device("l40s"), first_start=True
    )
    items = estimate(first, whole(first))
    left = int(0.92 * first.device.memory_bytes) - items.total
    assert left / GIB == pytest.approx(11.57, abs=0.01)
    for other in (
        first._replace(enforce_eager=True),
        first._replace(device=named_device("mi300x")),
        deployment("qwen3-14b", "0.11", seqs=256)._replace(first_start=True),
    ):
        assert activation_bytes(other, whole(other)) == activation_bytes(
            other._replace(first_start=False), whole(other)
        )


def test_pool_error_bound_covers_nine_of_ten_logs():
    found = expected_error("vllm")
    errors = sorted(abs(error) for error in ERRORS["vllm"])
    assert sum(error <= found.most for error in errors) >= 0.9 * found.logs
    assert sum(error < found.half for error in errors) <= found.logs / 2
    low, high = found.around(100_000)
    assert (low, high) == (int(100_000 / 1.0556), int(100_000 / 0.9444))
    assert f"{low:,} to {high:,} tokens" in found.text(100_000)
