"""Requests that are accepted or refused on arrival."""

import pytest

import kvsim
from kvsim.engine.schedulers import SCHEDULERS
from kvsim.request import Request

MAX_MODEL_LEN = 64


@pytest.mark.parametrize("kind", list(SCHEDULERS))
def test_prompt_without_room_for_a_token_is_refused(kind):
    """A prompt of max_model_len - 1 tokens leaves one output token; a scheduler that reserves more
    says so.
    """
    scenario = {
        "model": {"name": "opt-125m", "max_model_len": MAX_MODEL_LEN},
        "device": {"name": "l4"},
        "memory": {"kv_cache_tokens": 4096},
        "allocator": {"kind": "cells" if kind == "llama-server" else "max-buffer"},
        "scheduler": {"kind": kind},
    }
    prompts = {"roomy": 32, "last": MAX_MODEL_LEN - 1, "full": MAX_MODEL_LEN}
    requests = [Request(name, 0, tokens, 8) for name, tokens in prompts.items()]
    table = kvsim.simulate(scenario, requests).runs[0].requests.set_index("id")
    assert table.status["roomy"] == "finished"
    assert table.status["full"] == "rejected"
    assert f"max_model_len: 64 tokens, limit {MAX_MODEL_LEN - 1};" in table.reason["full"]
    if table.status["last"] == "finished":
        assert table.output_tokens["last"] == 1
    else:
        assert "room for output in the context and the pool" in table.reason["last"]
