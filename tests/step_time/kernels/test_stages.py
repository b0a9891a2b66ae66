"""Stages of a pipeline that are composed of kernels: layers that read a cache of another stage."""

from itertools import cycle
from typing import Any

import pytest

from kvsim.model import Attention, named_model
from kvsim.model.catalogue import model_names
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.step_time.stages import StageTimes


def shares_caches(name: str) -> bool:
    mixers = [layer.mixer for layer in named_model(name).layers]
    return any(isinstance(mixer, Attention) and mixer.shares_cache for mixer in mixers)


SHARING = [name for name in model_names() if shares_caches(name)]


def step_time(name: str, stages: int, dtype: str = "auto") -> Any:
    model = {
        "name": name,
        "pipeline_parallel_size": stages,
        "kv_cache_dtype": dtype,
        "max_model_len": 8192,
    }
    tables = {
        "model": {**model, "max_model_len": 8192},
        "device": {"name": "h100"},
        "allocator": [{"kind": "paged"}],
        "step_time": {"kind": "kernels"},
    }
    return Simulation(Scenario.from_table(tables), []).step_time


@pytest.mark.parametrize(
    ("name", "dtype"), list(zip(SHARING, cycle(["auto", "fp8"]), strict=False))
)
def test_attention_time_of_all_stages_equals_the_whole_model(name: str, dtype: str) -> None:
    """The last stages have layers that keep no cache, and read the format that earlier ones keep:
    all stages' attention takes as long as that of one.
    """
    whole = step_time(name, 1, dtype)
    for stages in (2, 5):
        pipeline = step_time(name, stages, dtype)
        assert isinstance(pipeline, StageTimes)
        for batch, tokens in ((1, 3000), (16, 900)):
            reads = [
                sum(sheet.of(batch).at(tokens) for form in forms for sheet in form.decode)
                for forms in (pipeline.forms, [whole])
            ]
            assert reads[0] == pytest.approx(reads[1], rel=1e-6)
