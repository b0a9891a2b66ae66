"""Commands that list recipes, models and devices."""

import json

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario, recipes


def told(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_recipes_command_lists_questions_and_prints_a_recipe(tmp_path) -> None:
    listed = json.loads(told("recipes", "--json"))["recipes"]
    assert [each["name"] for each in listed] == list(recipes())
    assert all(each["question"].endswith((")", "?")) for each in listed)
    (tmp_path / "mine.toml").write_text(told("recipes", "chat"))
    mine, shipped = Scenario.load(tmp_path / "mine.toml"), Scenario.load("chat")
    assert mine.model_dump() == shipped.model_dump()
    with pytest.raises(InputError, match="did you mean 'chat'"):
        told("recipes", "chta")


@pytest.mark.parametrize("kind", ["models", "devices"])
def test_models_and_devices_are_listed_and_narrowed(kind: str) -> None:
    every = json.loads(told(kind, "--json"))[kind]
    part = every[0]["name"][:4]
    some = json.loads(told(kind, part, "--json"))[kind]
    assert 1 <= len(some) <= len(every)
    assert all(part in each["name"] for each in some)
    table = told(kind)
    assert all(each["name"] in table for each in every)
    with pytest.raises(InputError, match="lists them all"):
        told(kind, "no such name")


def test_devices_lists_mig_slices_by_name() -> None:
    (slice_,) = json.loads(told("devices", "h100-mig-3g.40gb", "--json"))["devices"]
    (whole,) = (
        each for each in json.loads(told("devices", "--json"))["devices"] if each["name"] == "h100"
    )
    assert slice_["memory_bytes"] * 2 == pytest.approx(whole["memory_bytes"], rel=0.01)
    assert "named as h100-3g.40gb" in " ".join(told("devices").split())


def test_models_command_lists_coverage_by_engine() -> None:
    (model,) = json.loads(told("models", "deepseek-v4-pro-base", "--json"))["models"]
    assert model["coverage"]["vllm"]["level"] == "exact"
    assert model["coverage"]["sglang"]["level"] == "approximate"
    said = " ".join(told("models", "lfm2").split())
    assert "SGLang, approximate: exact with disable_overlap_schedule = true" in said
    assert "(lfm2-1.2b, lfm2-8b-a1b)." in said
    assert "TensorRT-LLM, approximate: no schedules" in said
