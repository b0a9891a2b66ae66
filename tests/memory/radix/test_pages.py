"""Pages of a radix tree: the pool holds one at least."""

import pytest

import kvsim
from kvsim.plumbing.errors import InputError
from kvsim.request import Request


@pytest.mark.parametrize("tokens", [63, 128])
def test_pool_smaller_than_one_page_is_refused(tokens: int) -> None:
    tables = {
        "model": {"name": "opt-125m", "max_model_len": 600},
        "device": {"name": "l4"},
        "memory": {"kv_cache_tokens": tokens},
        "allocator": [{"kind": "radix", "page_size": 64}],
    }
    requests = [Request("r", 0, 20, 4, 4)]
    if tokens < 64:
        with pytest.raises(InputError, match=r"page_size: the KV pool holds no page; got 64"):
            kvsim.simulate(tables, requests)
    else:
        (run,) = kvsim.simulate(tables, requests).runs
        assert run.summary["requests"]["finished"] == 1
