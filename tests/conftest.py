"""Scenarios small enough to run by the hundred."""

import gc
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# A busy machine is slow at drawing examples, and that says nothing about them.
hypothesis.settings.register_profile(
    "kvsim", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("kvsim")

# For evidence/, which is not installed; last, so that an installed kvsim comes before this one.
sys.path.append(str(Path(__file__).parents[1]))

# What collecting makes stays to the end: to look through it again and again is a sixth of its time.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on garbage is collected, of what tests make."""
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known where a test under tests/ is asked for."""
    parser.addoption("--quick", action="store_true", help="of the longest a few (support/quick.py)")
    parser.addoption("--sixth", action="store_true", help="of recorded schedules every sixth")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run slow tests first, so that workers finish together. --quick: of the largest tests only
    those that `quick` selects. --sixth: of the recorded schedules only every sixth, to compare
    sources and compiled wheel.
    """
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for option, choice in (("--quick", "few"), ("--sixth", "sixth")):
        if config.getoption(option):
            items[:], left = getattr(import_module("support.quick"), choice)(items)
            config.hook.pytest_deselected(items=left)


MODEL = {"name": "opt-125m"}
DEVICE = {"name": "a100-40gb"}


@pytest.fixture
def tables() -> Any:
    """A function: scenario tables around the parts a test chooses."""

    def make(**parts: Any) -> dict[str, Any]:
        return {
            "model": dict(MODEL),
            "device": dict(DEVICE),
            "memory": {"kv_cache_tokens": 4096},
            "step_time": {
                "kind": "linear",
                "base_us": 8000,
                "prefill_token_us": 40,
                "decode_seq_us": 60,
            },
            **parts,
        }

    return make
