"""The size of the pool: against vLLM's logs, item by item, and as given by the user."""

import json
from dataclasses import replace
from typing import Any

import pytest
from support.each import check_each
from typer.testing import CliRunner

from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.sizing import size
from kvsim.cli import app
from kvsim.device import named_device
from kvsim.model import ModelOptions
from kvsim.model.catalogue import model_names
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB
from kvsim.report.remarks import remarks
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.vllm.versions import vllm_version


def pool(model, device, seqs=256, tokens=2048, tp=1, block_size=16, **memory):
    options = ModelOptions(name=model, tensor_parallel_size=tp)
    return size(
        options.build(),
        named_device(device),
        MemoryOptions.parse(memory, "memory"),
        options,
        block_size,
        seqs,
        tokens,
    ).pool


@pytest.mark.parametrize(
    ("model", "device", "version", "seqs", "tokens", "gib"),
    [
        # llm-d-benchmark, config_explorer/empirical-vllm-memory-results.md, by its sorting sampler
        ("llama-3.1-8b", "h100", "0.12", 1024, 8192, 51.38),
        ("qwen3-0.6b", "h100", "0.12", 1024, 8192, 64.45),
        ("gpt-oss-20b", "h100", "0.12", 1024, 8192, 50.28),
        # 7,351 blocks of 8 MiB: github.com/vllm-project/vllm/pull/2031
        ("llama-2-7b", "a100-80gb", "V0", 256, 4096, 57.43),
        # 18,038 blocks of 2.5 MiB: a server of vLLM 0.23 on an H100, at its default utilisation
        ("qwen3-14b", "h100", "0.23", 256, 8192, 44.04),
    ],
)
def test_pools_equal_those_in_vllm_logs(model, device, version, seqs, tokens, gib):
    """Pools are within 1.5 % of vLLM's logs."""
    found = pool(model, device, seqs, tokens, engine_version=version)
    assert found.capacity_bytes / GIB == pytest.approx(gib, rel=0.015)


def test_small_pool_of_a_small_gpu_is_within_a_tenth():
    """2,588 blocks of 2 MiB, LLMServingSim's recorded run of vLLM 0.19: to a tenth of it, which is
    2 % of the GPU. A compiler's peak is in the log's figure."""
    found = pool("llama-3.1-8b", "rtx-4090", engine_version="0.19")
    assert found.capacity_bytes / GIB == pytest.approx(5.055, rel=0.1)


@pytest.mark.parametrize(("version", "halved"), [("0.13", False), ("0.14", True), ("0.33", True)])
def test_checkpoint_with_an_fp8_cache_scheme_gets_an_fp8_cache(version, halved):
    plain = ModelOptions(name="llama-3.1-8b").build()
    asking = replace(plain, kv_cache_dtype="fp8")
    device, memory = named_device("h100"), MemoryOptions(engine_version=version)
    blocks = [
        size(model, device, memory, ModelOptions(name="llama-3.1-8b"), 16).pool.num_gpu_blocks
        for model in (plain, asking)
    ]
    assert blocks[1] // blocks[0] == (2 if halved else 1)


def test_memory_items_sum_to_the_device():
    p = pool("llama-3-70b", "h100", tp=4)
    items = p.unused_bytes + p.weights_bytes + p.activation_bytes + p.other_bytes
    assert items + p.capacity_bytes == p.total_bytes
    assert p.other_bytes == p.non_torch_bytes + p.cuda_graph_bytes
    assert p.num_gpu_blocks == p.capacity_bytes // (16 * 80 * 1024)
    assert p.sized_by == "gpu_memory_utilization"


def test_measured_reserves_replace_the_estimates():
    p = pool("llama-3.1-8b", "rtx-4090", weights_gib=14.99, activation_gib=0.98, other_gib=0.14)
    assert p.capacity_bytes == pytest.approx(
        0.92 * named_device("rtx-4090").memory_bytes - 16.11 * GIB, abs=4
    )


@pytest.mark.parametrize(
    ("memory", "blocks"),
    [
        ({"kv_cache_bytes": 983 * 16 * 819_200 + 5}, 983),
        ({"kv_cache_tokens": 15_728}, 983),
        ({"num_gpu_blocks": 983}, 983),
    ],
)
def test_given_pool_size_is_used(memory, blocks):
    p = pool("opt-13b", "a100-40gb", **memory)
    assert (p.sized_by, p.num_gpu_blocks) == (next(iter(memory)), blocks)
    assert p.capacity_bytes == memory.get("kv_cache_bytes", 15_728 * 819_200)
    assert p.unused_bytes == p.activation_bytes == p.other_bytes == 0


@pytest.mark.parametrize("version", ["0.33", "0.19"])
def test_counts_of_a_log_reproduce_its_pool(version):
    """Blocks to the byte, and tokens to what prints as many, for every model of the catalogue."""
    check_each(model_names(), lambda model: check_counts(model, version))


def check_counts(model, version):
    options = ModelOptions(name=model)
    built, device = options.build(), named_device("b300")

    def sized(**memory):
        asked = MemoryOptions.parse({"engine_version": version, **memory}, "memory")
        return size(built, device, asked, options, 16)

    first = sized(kv_cache_bytes=7 * 10**10)
    blocks, tokens = first.pool.num_gpu_blocks, first.pool.pool_tokens
    assert blocks == first.pool.engine_num_gpu_blocks
    again = sized(num_gpu_blocks=blocks).pool
    assert again.capacity_bytes == blocks * first.plan.bytes_per_block
    assert 0 <= first.pool.capacity_bytes - again.capacity_bytes < first.plan.bytes_per_block
    by_tokens = sized(kv_cache_tokens=tokens)
    assert by_tokens.pool.pool_tokens == tokens
    assert by_tokens.pool.kv_cache_size_tokens == first.pool.kv_cache_size_tokens
    assert by_tokens.pool.capacity_bytes == pytest.approx(7e10, rel=0.01)


@pytest.mark.parametrize(
    ("model", "blocks", "gib"), [("gemma-4-31b", 53_042, 64.75), ("qwen3.5-27b", 1509, 72.2)]
)
def test_run_uses_num_gpu_blocks_of_a_log(tables, model, blocks, gib):
    """As pools of blocks with one group of layers each; contiguous buffers hold all layers, and
    SGLang's counts are of all layers too."""
    parts = {"model": {"name": model, "max_model_len": 8192}, "device": {"name": "h200"}}
    if model.startswith("gemma"):
        parts["model"]["kv_cache_dtype"] = "fp8"
    memory = {"num_gpu_blocks": blocks}

    def simulated(allocator, **more):
        asked = tables(**parts, memory=memory, allocator=allocator, **more)
        return Simulation(Scenario.from_table(asked), [Request("a", 0, 10, 4)])

    paged = simulated("paged")
    assert paged.pool.capacity_bytes / GIB == pytest.approx(gib, abs=0.05)
    assert (paged.pool.num_gpu_blocks, paged.pool.engine_num_gpu_blocks) == (blocks, blocks)
    whole = simulated("max-buffer")
    assert whole.pool.capacity_bytes == blocks * 16 * whole.layout.bytes_per_token
    one_table = simulated({"kind": "paged", "disable_hybrid_kv_cache_manager": True})
    if model.startswith("gemma"):
        assert one_table.pool.capacity_bytes == whole.pool.capacity_bytes


def test_pool_larger_than_the_device_is_noted_in_the_run(tables):
    tight = tables(model={"name": "opt-13b"}, device={"name": "a10g"}, allocator="paged")
    result = Simulation(
        Scenario.from_table({**tight, "memory": {"num_gpu_blocks": 3000}}), [Request("a", 0, 10, 4)]
    ).result()
    (note,) = [each for each in result.runs[0].summary.notes if each.about == "pool"]
    assert "take 60.56 GiB, more than the 22.06 GiB of one a10g" in note.text
    assert any(note.text in each for each in remarks(result))


def test_given_block_size_is_used():
    assert pool("opt-13b", "a100-40gb", num_gpu_blocks=10, block_size=32).capacity_bytes == (
        320 * 819_200
    )


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        ({"kv_cache_tokens": 5, "num_gpu_blocks": 5}, "not kv_cache_tokens and num_gpu_blocks"),
        ({"kv_cache_tokens": 5, "activation_gib": 1}, "activation_gib would change nothing"),
        ({"gpu_memory_utilization": 1.2}, r"memory\.gpu_memory_utilization"),
        ({"kv_cache_gb": 5}, "unknown key"),
        ({"engine_version": "soon"}, "not a version of vLLM"),
    ],
)
def test_invalid_memory_options_are_refused(memory, message):
    with pytest.raises(InputError, match=message):
        MemoryOptions.parse(memory, "memory")


def test_weights_that_do_not_fit_are_refused_in_one_line():
    with pytest.raises(InputError, match="no memory is left for KV") as caught:
        pool("llama-3-70b", "a100-80gb")
    line = str(caught.value)
    assert "131.42 GiB of weights" in line
    assert "limit 72.82 GiB" in line
    assert "tensor_parallel_size" in line


@pytest.mark.parametrize(
    ("scheduler", "version", "utilization"),
    [
        ({"kind": "continuous"}, "0.33", 0.92),
        ({"kind": "continuous", "semantics": "vllm-0.22"}, "0.22", 0.92),
        ({"kind": "continuous", "semantics": "vllm-0.11"}, "0.11", 0.9),
        ({"kind": "vllm-v0"}, "V0", 0.9),
        ({"kind": "sglang"}, "0.33", 0.92),
    ],
)
def test_the_pool_is_sized_as_the_schedulers_version_does(
    tables: Any, scheduler: dict[str, Any], version: str, utilization: float
) -> None:
    """0.92 from 0.20 on and 0.9 before, by the wheels' config/cache.py; a given one stays."""
    parts = {"scheduler": scheduler, "model": {"name": "opt-13b"}, "device": {"name": "h100"}}
    asked = tables(memory={}, allocator="paged", **parts)
    resolved = Simulation(Scenario.from_table(asked), [Request("a", 0, 10, 4)]).resolved()
    memory, said = resolved["memory"], resolved["provenance"]["defaults"]
    assert (memory["engine_version"], memory["gpu_memory_utilization"]) == (version, utilization)
    assert said == {"gpu_memory_utilization": f"{utilization:g}, the default of vLLM {version}"}
    again = Scenario.from_table(resolved)
    assert (again.memory.version.name, again.memory.utilization) == (
        vllm_version(version).name,
        utilization,
    )
    given = {"gpu_memory_utilization": 0.8, "engine_version": "0.19"}
    memory = Scenario.from_table(tables(memory=given, allocator="paged", **parts)).memory
    assert (memory.engine_version, memory.utilization) == ("0.19", 0.8)


@pytest.mark.parametrize(
    ("model", "stages", "warned"),
    [
        ("gemma-3-27b", 1, ["Add 8 padding layers, may waste at most 15.38% KV cache memory"]),
        # vLLM deals out the layers of all stages together.
        ("gemma-3-27b", 2, ["Add 8 padding layers, may waste at most 15.38% KV cache memory"]),
        ("gemma-3-12b", 1, []),
        ("llama-3.1-8b", 1, []),
    ],
)
def test_padding_layers_are_warned_of_as_by_the_engine(model, stages, warned):
    options = ModelOptions(name=model, pipeline_parallel_size=stages)
    memory = MemoryOptions.parse({}, "memory")
    sized = size(options.build(), named_device("h200"), memory, options, 16)
    assert [line for line in sized.start_up.lines() if "padding" in line] == warned


def test_layer_partition_moves_layers_off_the_tightest_stage():
    """Of 32 layers the last stage has the head too: with fewer layers than the first, its pool has
    more blocks; the smallest of both decides.
    """
    device, memory = named_device("rtx-4090"), MemoryOptions.parse({}, "memory")

    def blocks(partition):
        table = {"name": "llama-3.1-8b", "pipeline_parallel_size": 2}
        if partition:
            table["pp_layer_partition"] = partition
        options = ModelOptions.parse(table, "model")
        return size(options.build(), device, memory, options, 16).pool.engine_num_gpu_blocks

    assert blocks("16,16") == blocks(None)
    options = ModelOptions(
        name="llama-3.1-8b", pipeline_parallel_size=2, pp_layer_partition="20,12"
    )
    sized = size(options.build(), device, memory, options, 16)
    assert [share.layers for share in sized.stages] == [20, 12]
    fewest = min(share.num_gpu_blocks for share in sized.stages)
    assert sized.pool.engine_num_gpu_blocks == fewest == sized.stages[0].num_gpu_blocks
    for share in sized.stages:
        assert share.num_gpu_blocks == share.pool_bytes // (share.layers * 16 * 4096)
    found = [blocks(f"{first},{32 - first}") for first in range(8, 25)]
    assert found[8] == max(found)
    assert found[:9] == sorted(found[:9])
    assert found[8:] == sorted(found[8:], reverse=True)


@pytest.mark.parametrize(
    ("partition", "stages", "message"),
    [
        ("16,15", 2, "31 layers.*32"),
        ("16,16", 1, "2 stages, pipeline_parallel_size is 1"),
        ("32", 1, "1 stages, pipeline_parallel_size is 1"),
        ("0,32", 2, "pp_layer_partition"),
        ("16;16", 2, "pp_layer_partition"),
    ],
)
def test_invalid_layer_partition_is_refused(partition, stages, message):
    table = {"name": "llama-3.1-8b", "pipeline_parallel_size": stages}

    def sized():
        options = ModelOptions.parse(table | {"pp_layer_partition": partition}, "model")
        memory = MemoryOptions.parse({}, "memory")
        return size(options.build(), named_device("h100"), memory, options, 16)

    with pytest.raises(InputError, match=message):
        sized()


def test_fewer_state_blocks_than_max_num_seqs_is_refused():
    """github.com/vllm-project/recipes/pull/831: 1,024 sequences are more than the blocks of states
    that a GPU has beside Qwen3.8-27B, and vLLM aborts ("exceeds available Mamba cache blocks").
    """
    asked = ["memory", "Qwen/Qwen3.8-27B", "--device", "rtx-pro-6000", "--json", "--max-num-seqs"]

    def engine(*flags):
        found = CliRunner().invoke(app, [*asked, *flags])
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)["engine"]

    many = engine("1024", "--gpu-memory-utilization", "0.9")
    assert many["num_gpu_blocks"] < 1024
    assert not many["starts"]
    assert "max_num_seqs (1,024) exceeds available Mamba cache blocks" in many["log"][-1]
    assert engine("1024", "--gpu-memory-utilization", "0.9", "--enforce-eager")["starts"]
    assert engine("1024", "--gpu-memory-utilization", "0.9", "--engine-version", "0.16")["starts"]
    assert engine("256")["starts"]
