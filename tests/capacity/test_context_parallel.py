"""Decode context parallelism: refused where vLLM refuses it, else sized and simulated."""

from typing import Any

import pytest
from typer.testing import CliRunner

import kvsim
from kvsim.cli import app
from kvsim.plumbing.errors import InputError
from kvsim.request import Request


@pytest.mark.parametrize(
    ("name", "tp", "shared", "allowed"),
    [
        ("llama-3.1-70b", 4, 2, False),  # 8 KV heads over 4 GPUs: none is there twice
        ("qwen3-8b", 2, 2, False),
        ("llama-3.1-70b", 8, 2, False),
        ("qwen3-30b-a3b", 8, 2, True),  # 4 KV heads, each on two GPUs
        ("qwen3-30b-a3b", 8, 4, False),
        ("deepseek-v3", 8, 8, True),  # latents are the same on all
        ("deepseek-v3", 8, 1, True),
    ],
)
def test_decode_context_parallelism_requires_replicated_kv_heads(
    name: str, tp: int, shared: int, allowed: bool
) -> None:
    flags = ["--tensor-parallel-size", str(tp), "--decode-context-parallel-size", str(shared)]
    said = CliRunner().invoke(app, ["memory", name, "--device", "h200", *flags])
    assert (said.exit_code == 0) == allowed, said.output
    if not allowed:
        assert "hold the same KV heads" in str(said.exception)


def scenario(tables: Any, shared: int, **other: Any) -> Any:
    model = {"name": "deepseek-v3", "tensor_parallel_size": 8, "max_model_len": 4096}
    return tables(
        model={**model, "decode_context_parallel_size": shared},
        device={"name": "h200"},
        memory={"gpu_memory_utilization": 0.9},
        **{"allocator": [{"kind": "paged", "block_size": 64}], **other},
    )


@pytest.mark.parametrize(("shared", "drafts"), [(2, 0), (8, 0), (8, 1)])
def test_context_parallel_run_has_the_sized_pool(tables: Any, shared: int, drafts: int) -> None:
    requests = [Request(f"r{index}", 0, 1000, 20) for index in range(8)]
    config = {"method": "mtp", "num_speculative_tokens": drafts, "acceptance_rate": 0.0}
    other = {"speculative_config": config} if drafts else {}
    whole = kvsim.simulate(scenario(tables, 1, **other), requests)
    split = kvsim.simulate(scenario(tables, shared, **other), requests)
    (one,), (many,) = whole.runs, split.runs
    assert many.summary["memory"]["capacity_tokens"] == pytest.approx(
        shared * one.summary["memory"]["capacity_tokens"], rel=1e-4
    )
    sized = split.scenario["provenance"]["pool"]["kv_cache_size_tokens"]
    assert 0 <= many.summary["memory"]["capacity_tokens"] - sized < 64 * shared
    # 1,019 tokens end in a block of 64 * shared: so much of it stays empty at the end.
    assert many.summary["memory"]["peak_used"] == pytest.approx(
        one.summary["memory"]["peak_used"] / shared, rel=1e-3
    )


@pytest.mark.parametrize(
    "other",
    [{"allocator": [{"kind": "max-buffer"}]}, {"model": {"name": "gpt-oss-20b"}}],
    ids=["buffers", "windows"],
)
def test_decode_context_parallelism_that_vllm_refuses_is_refused(
    tables: Any, other: dict[str, Any]
) -> None:
    made = scenario(tables, 8, **{key: value for key, value in other.items() if key != "model"})
    made["model"] = {**made["model"], **other.get("model", {})}
    with pytest.raises(InputError, match="decode_context_parallel_size"):
        kvsim.simulate(made, [Request("r", 0, 100, 10)])
