"""No key of [model] is accepted for a model without the layers that the key concerns."""

from typing import Any

import pytest
from typer.testing import CliRunner

import kvsim
from kvsim.cli import app
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario

WORKLOAD = {
    "kind": "synthetic", "num_requests": 3, "arrivals": "at-once",
    "prompt": {"kind": "fixed", "tokens": 50}, "output": {"kind": "fixed", "tokens": 5},
}  # fmt: skip


def ran(model: dict[str, Any]) -> None:
    table = {"model": model, "allocator": {"kind": "paged"}, "device": {"name": "h100"}}
    kvsim.simulate(table | {"workload": WORKLOAD})


@pytest.mark.parametrize(
    ("key", "value", "because"),
    [
        ("mamba_ssm_cache_dtype", "float32", "no recurrent layers"),
        ("enable_expert_parallel", True, "no routed experts"),
        ("language_model_only", True, "no tower"),
    ],
)
def test_key_for_layers_that_the_model_lacks_is_refused(key: str, value: Any, because: str) -> None:
    with pytest.raises(InputError, match=rf"model.{key}: changes nothing: .*{because}"):
        ran({"name": "opt-125m", key: value})
    words = [f"--{key.replace('_', '-')}", *([] if value is True else [value])]
    done = CliRunner().invoke(app, ["memory", "llama-3.1-8b", "--device", "h100", *words])
    assert done.exit_code == 2 or isinstance(done.exception, InputError)
    assert because in f"{done.output}{done.exception}"


def test_images_for_a_model_without_a_vision_tower_are_refused() -> None:
    seeing = Scenario.load("images", ["workload.num_requests=3"])
    assert kvsim.simulate(seeing).runs[0].summary.encoder
    blind = Scenario.load("images", ["workload.num_requests=3", "model.language_model_only=true"])
    with pytest.raises(InputError, match=r"model\.language_model_only: the towers"):
        kvsim.simulate(blind)


def test_model_keys_with_an_effect_are_accepted() -> None:
    experts = {"name": "deepseek-v2-lite", "max_model_len": 4096, "enable_expert_parallel": True}
    ran(experts | {"tensor_parallel_size": 2})
    ran({"name": "qwen3.5-4b", "max_model_len": 4096, "mamba_ssm_cache_dtype": "bfloat16"})
