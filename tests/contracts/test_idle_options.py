"""No option of `kvsim memory` is ignored in silence: some value of it changes the answer for some
model, or all are refused.
"""

import json
from functools import cache
from typing import Any

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.commands.memory.flags import PANELS
from kvsim.plumbing.errors import InputError

# Models with equal layers, recurrent states, latents, windows; vLLM's pool and SGLang's.
BASES = [
    ["llama-3.1-8b", "--device", "h100"],
    ["qwen3.5-35b-a3b", "--device", "h200"],
    ["deepseek-v3", "--device", "b200", "--tensor-parallel-size", "8"],
    ["llama-3.1-8b", "--device", "h100", "--mem-fraction-static", "0.8"],
    ["qwen3.5-4b", "--device", "h100", "--mem-fraction-static", "0.8"],
    ["gemma-3-27b", "--device", "h200", "--mem-fraction-static", "0.8"],
]
WORDS = ("fp8", "float32", "bfloat16", "int4", "q8_0", "0.9.2", "auto", "qwen3-0.6b", "on", "off")
# The engine's own default: given, it says so, and `--no-enable-prefix-caching` changes the answer.
DEFAULTS = ("enable_prefix_caching",)
BESIDE = {
    "num_speculative_tokens": ["--drafter", "qwen3-0.6b"],
    "max_lora_rank": ["--max-loras", "4"],
}
OPTIONS = {name: flag for panel in PANELS.values() for name, flag in panel.items()}


def values(kind: Any) -> list[list[str]]:
    if kind is bool:
        return [[]]
    if kind is int or "count_of" in getattr(kind, "__name__", ""):
        return [["2"], ["64"], ["4096"], ["1000000000"]]
    return [["0.5"], ["40"]] if kind is float else [[word] for word in WORDS]


def answer(words: list[str]) -> Any:
    """The command's answer; None if it is refused. Cached, since many options share one base."""
    return _answer(tuple(words))


@cache
def _answer(words: tuple[str, ...]) -> Any:
    done = CliRunner().invoke(app, ["memory", *words, "--json"])
    if done.exit_code == 2 or isinstance(done.exception, InputError):
        return None
    assert done.exit_code == 0, (words, done.output)
    return json.loads(done.stdout)


def figures(found: Any) -> Any:
    return found and {key: each for key, each in found.items() if key != "notes"}


@pytest.mark.parametrize("name", OPTIONS)
def test_memory_option_changes_the_answer_or_is_refused(name: str) -> None:
    found = set()
    for base in BASES:
        base = [*base, *BESIDE.get(name, [])]
        was = answer(base)
        for value in values(OPTIONS[name].kind):
            option = f"--{name.replace('_', '-')}"
            now = answer([*base, option, *value])
            found.add("refused" if now is None else "changed" if now != was else "the same")
            if "changed" in found:
                return
    assert found == {"refused"} or name in DEFAULTS


# Each way to size a pool, for models with layers of one kind, recurrent states and windows.
POOLS = {
    "share": ["gemma-3-1b"],
    "bytes": ["llama-3.1-8b", "--kv-cache-bytes", "40000000000"],
    "tokens": ["gemma-3-1b", "--kv-cache-tokens", "300000"],
    "blocks": ["qwen3.5-4b", "--num-gpu-blocks", "1800"],
    "sglang": ["qwen3.5-4b", "--mem-fraction-static", "0.8"],
    "trt-llm": ["llama-3.1-8b", "--free-gpu-memory-fraction", "0.8"],
}


@pytest.mark.parametrize("pool", POOLS)
def test_memory_option_without_effect_is_noted(pool: str) -> None:
    base = [*POOLS[pool], "--device", "h100"]
    was = figures(answer(base))
    for name, flag in OPTIONS.items():
        option = f"--{name.replace('_', '-')}"
        first, *others = sorted(
            values(flag.kind), key=lambda each: each != values(flag.kind)[:2][-1]
        )
        now = answer([*base, option, *first])
        if now is None:
            continue
        idle = figures(now) == was
        if any(option in note for note in now["notes"]):
            assert idle, (option, first)
        elif idle and name not in DEFAULTS:  # this value is the default, written out
            answers = [figures(answer([*base, option, *other])) for other in others]
            assert any(each not in (None, was) for each in answers), (option, first)


def test_cuda_graph_and_adapter_options_with_a_given_pool_are_noted() -> None:
    """CUDA graphs and adapters reduce a pool that is sized, but not one of a given size."""
    reserves = ["--enforce-eager", "--max-loras", "4", "--max-num-seqs", "64"]
    words = ["llama-3.1-8b", "--device", "h100", "--num-gpu-blocks", "18000", *reserves]
    assert answer(words)["notes"] == [
        "--max-num-seqs, --enforce-eager, --max-loras change nothing here."
    ]
    shown = CliRunner().invoke(app, ["memory", *words])
    assert "note: --max-num-seqs, --enforce-eager, --max-loras change nothing" in shown.output


def test_option_set_to_its_default_is_not_noted_as_unused() -> None:
    defaults = ["--max-num-seqs", "256", "--max-num-batched-tokens", "8192", "--block-size", "16"]
    shares = ["--gpu-memory-utilization", "0.92", "--max-model-len", "131072", "--dtype", "auto"]
    assert answer(["llama-3.1-8b", "--device", "h100", *defaults, *shares])["notes"] == []


def test_a_device_smaller_than_the_weights_is_refused_for_sglang_too() -> None:
    for memory in ("0.5", "1", "10"):
        assert answer([*BASES[3], "--device-memory", memory]) is None


@pytest.mark.parametrize("ratio", ["swa-full-tokens-ratio", "mamba-full-memory-ratio"])
def test_pool_ratio_for_pools_that_the_model_lacks_is_noted(ratio: str) -> None:
    words = [*BASES[3], f"--{ratio}", "0.5"]
    (note,) = answer(words)["notes"]
    assert f"--{ratio} changes nothing" in note
    shown = CliRunner().invoke(app, ["memory", *words])
    assert f"note: {note}" in shown.output
