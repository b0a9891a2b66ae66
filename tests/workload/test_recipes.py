"""The recipes that ship: each asks a question, is read, and makes its requests."""

import tomllib
from pathlib import Path

import pytest

from kvsim.results.question import QuestionOptions
from kvsim.workload import WORKLOADS
from kvsim.workload.catalogue import entries

RECIPES = sorted((Path(__file__).parents[2] / "workloads").glob("*.toml"))
WANTED = {
    "chat",
    "azure-conv",
    "azure-code",
    "mooncake-conversation",
    "code-completion",
    "long-document-qa",
    "agents",
    "vllm-or-sglang",
    "vllm-or-sglang-agents",
    "vllm-or-sglang-mooncake",
    "vllm-or-sglang-thrash",
    "llamacpp-vllm-or-sglang",
    "states-or-tokens",
    "prefill-or-both",
    "images",
    "adapters",
}


def test_all_listed_recipes_exist() -> None:
    assert {path.stem for path in RECIPES} >= WANTED


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_states_its_question_and_generates_requests(path: Path) -> None:
    table = tomllib.loads(path.read_text())
    assert "?" in QuestionOptions.parse(table["question"], "question").text
    options = WORKLOADS.parse(table["workload"], "workload")
    if table["workload"]["kind"] == "trace":
        assert table["workload"]["name"] in entries()
        return
    made = options.generate(table.get("seed", 0), base=path.parent, max_model_len=2048 * 64)
    assert 500 <= len(made.requests) <= 10_000
