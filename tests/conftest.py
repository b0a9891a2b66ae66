"""Scenarios small enough to run by the hundred."""

from typing import Any

import pytest

MODEL = {"name": "opt-125m"}
DEVICE = {"name": "a100-40gb"}


@pytest.fixture
def tables() -> Any:
    """A function: scenario tables around the parts a test chooses."""

    def make(**parts: Any) -> dict[str, Any]:
        return {
            "model": MODEL,
            "device": DEVICE,
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
