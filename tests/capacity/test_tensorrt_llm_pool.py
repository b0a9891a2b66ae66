"""The pool as TensorRT-LLM sizes it: blocks of published logs, limits, and what is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import kvsim
from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.pool import SizedPool
from kvsim.capacity.tensorrt_llm import log_lines, trt_llm_pool
from kvsim.cli import app
from kvsim.device import named_device, sized_device
from kvsim.model import ModelOptions
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB
from kvsim.request import Request


def sized(name: str, gib: float, block_size: int = 32, kv: str = "auto", **given: Any) -> SizedPool:
    options = ModelOptions.parse({"name": name, "kv_cache_dtype": kv}, "model")
    memory = MemoryOptions.parse({"free_gpu_memory_fraction": "auto", **given}, "memory")
    return trt_llm_pool(options.build(), sized_device("d", gib), options, memory, block_size)


@pytest.mark.parametrize(
    ("total", "free", "kv", "blocks", "shown"),
    [
        # github.com/NVIDIA/TensorRT-LLM/issues/2268: Qwen1.5-7B, 512 KiB a token as Llama-2-7B.
        (39.39, 21.89, "auto", 631, "19.72"),
        # nvidia.github.io/TensorRT-LLM/reference/memory.html: 256 KiB a token.
        (79.10, 70.48, "fp8", 4060, "63.44"),
    ],
)
def test_tensorrt_llm_free_memory_gives_the_logged_blocks(
    total: float, free: float, kv: str, blocks: int, shown: str
) -> None:
    rest = {"weights_gib": total - free, "activation_gib": 0, "other_gib": 0}
    pool = sized("llama-2-7b", total, 64, kv, **rest)
    assert pool.num_gpu_blocks == blocks
    assert log_lines(pool)[1].startswith(f"[MemUsageChange] Allocated {shown} GiB for max tokens")


def test_gpt_oss_log_counts_windows_as_full_attention() -> None:
    """A log of the PyTorch backend in a public repository: 119.70 GiB, of them 63.52 of weights,
    0.85 of activations and 49.28 outside torch, which a first pool of 0.56 is in; 73,728 bytes a
    token, all 36 layers of this model; 5.95 GiB, 86,711 tokens, 86,720 in blocks.
    """
    peak = {"weights_gib": 63.52, "activation_gib": 0.85, "other_gib": 49.28 - 0.56}
    assert sized("gpt-oss-120b", 119.70, **peak).capacity_bytes / GIB == pytest.approx(
        5.95, abs=6e-3
    )
    limited = sized("gpt-oss-120b", 119.70, kv_cache_tokens=86_711)
    assert limited.pool_tokens == 86_720
    assert limited.capacity_bytes == 86_720 * 73_728


@given(
    fraction=st.floats(0.01, 0.99),
    tokens=st.none() | st.integers(1, 200_000),
    most=st.none() | st.integers(1 << 20, 1 << 36),
    block_size=st.sampled_from([1, 16, 32, 64]),
)
def test_tensorrt_llm_pool_accounts_for_every_byte_within_limits(
    fraction: float, tokens: int | None, most: int | None, block_size: int
) -> None:
    limits = {"kv_cache_tokens": tokens, "kv_cache_bytes": most}
    pool = sized("llama-3.1-8b", 79.18, block_size, free_gpu_memory_fraction=fraction, **limits)
    parts = pool.unused_bytes, pool.weights_bytes, pool.activation_bytes, pool.other_bytes
    assert sum(parts) + pool.capacity_bytes == pool.total_bytes
    block = block_size * 131_072
    free = pool.unused_bytes + pool.capacity_bytes
    bounds = [free * fraction, *(() if most is None else (most,))]
    bounds += [] if tokens is None else [tokens * 131_072]
    # The last block is rounded up.
    assert min(bounds) - 131_072 <= pool.capacity_bytes < min(bounds) + block


def test_tensorrt_llm_pool_runs_in_a_scenario(tables: Any) -> None:
    made = tables(
        model={"name": "llama-3.1-8b"},
        memory={"free_gpu_memory_fraction": 0.5, "kv_cache_tokens": 1000},
        allocator=[{"kind": "paged", "block_size": 32}],
        scheduler={"kind": "trt-llm"},
    )
    result = kvsim.simulate(made, [Request("r", 0, 100, 10)])
    assert result.scenario["provenance"]["pool"]["num_gpu_blocks"] == 32
    again = kvsim.simulate(result.scenario, [Request("r", 0, 100, 10)])
    assert again.runs[0].summary.steps == result.runs[0].summary.steps


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"memory": {"engine_version": "0.19"}}, "engine_version is vLLM's: TensorRT-LLM's pool"),
        ({"memory": {"num_gpu_blocks": 4}}, "give one of"),
        ({"memory": {"mem_fraction_static": 0.5}}, "give one of"),
        ({"model": {"name": "nemotron-h-8b"}}, "recurrent states"),
        ({"model": {"name": "llama-3.1-70b"}}, "no memory is left for KV"),
    ],
    ids=str,
)
def test_unsupported_tensorrt_llm_settings_are_refused(
    tables: Any, more: dict[str, dict[str, Any]], words: str
) -> None:
    model = {"name": "llama-3.1-8b", **more.get("model", {})}
    memory = {"free_gpu_memory_fraction": 0.5, **more.get("memory", {})}
    made = tables(model=model, memory=memory, allocator=[{"kind": "paged"}])
    with pytest.raises(InputError, match=words):
        kvsim.simulate(made, [Request("r", 0, 100, 10)])


def test_memory_command_prints_tensorrt_llm_log_lines() -> None:
    flags = ["memory", "llama-3.1-8b", "--device", "h100", "--free-gpu-memory-fraction", "0.9"]
    flags += ["--max-tokens", "1000", "--tokens-per-block", "64"]
    said = CliRunner().invoke(app, flags)
    assert said.exit_code == 0
    assert (
        "[MemUsageChange] Allocated 0.12 GiB for max tokens in paged KV cache (1024)."
        in said.output
    )
    answer = json.loads(CliRunner().invoke(app, [*flags, "--json"]).output)
    assert answer["num_gpu_blocks"] == 16
    assert answer["total_bytes"] == named_device("h100").memory_bytes


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--max-tokens", "5"], "no option of vLLM's pool"),
        (["--free-gpu-memory-fraction", "0.5", "--block-size", "4"], "no option of TensorRT-LLM's"),
        (["--free-gpu-memory-fraction", "0.5", "--mem-fraction-static", "0.5"], "in place of"),
        (["--free-gpu-memory-fraction", "2"], "free_gpu_memory_fraction"),
    ],
)
def test_options_of_other_engines_are_refused_for_tensorrt_llm(
    flags: list[str], words: str
) -> None:
    said = CliRunner().invoke(app, ["memory", "llama-3.1-8b", "--device", "h100", *flags])
    assert said.exit_code != 0
    assert words in str(said.exception) + said.output
