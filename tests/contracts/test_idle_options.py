"""No option of `kvsim memory` is ignored in silence: some value of it changes the answer for some
model, or all are refused.
"""

import json
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
    """The answer; None where it is refused."""
    done = CliRunner().invoke(app, ["memory", *words, "--json"])
    if done.exit_code == 2 or isinstance(done.exception, InputError):
        return None
    assert done.exit_code == 0, (words, done.output)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_changes_the_answer_or_is_refused(name: str) -> None:
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


@pytest.mark.parametrize("ratio", ["swa-full-tokens-ratio", "mamba-full-memory-ratio"])
def test_a_ratio_of_pools_that_a_model_lacks_is_noted(ratio: str) -> None:
    words = [*BASES[3], f"--{ratio}", "0.5"]
    (note,) = answer(words)["notes"]
    assert f"--{ratio} changes nothing" in note
    shown = CliRunner().invoke(app, ["memory", *words])
    assert f"note: {note}" in shown.output
