"""kv_cache_tokens under SGLang's memory: max_total_num_tokens of its log, whatever the model has
beside the layers that keep every token.
"""

import pytest

from kvsim.capacity.sglang.simulated import bytes_of_tokens, settings_of
from kvsim.device import named_device
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.options import Paged
from kvsim.memory.radix_hybrid.build import state_pools, window_pools
from kvsim.model import ModelOptions
from kvsim.scenario import Scenario
from kvsim.scenario.build.pool import pool_of

TOKENS = (30_001, 60_000, 1_272_115)


def scenario(model: str, tokens: int, **allocator: object) -> Scenario:
    return Scenario.from_table(
        {
            "model": {"name": model, "max_model_len": 2048},
            "device": {"name": "h200"},
            "memory": {"kv_cache_tokens": tokens},
            "allocator": {"kind": "radix", **allocator},
            "scheduler": {"kind": "sglang"},
        }
    )


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize(("page", "ratio"), [(1, 0.8), (1, 0.35), (16, 0.8)])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b", "gemma-3-1b", "qwen3.5-4b"])
def test_kv_cache_tokens_give_the_logged_sglang_pool(
    model: str, page: int, ratio: float, tokens: int
) -> None:
    options = ModelOptions.parse({"name": model}, "model")
    layout = options.layout(options.build())
    keys = {"page_size": page, "swa_full_tokens_ratio": ratio}
    if model in ("llama-3.1-8b", "qwen3.5-4b"):
        del keys["swa_full_tokens_ratio"]  # refused without windows
    made = scenario(model, tokens, **keys)
    settings = settings_of(made.memory, (made.scheduler, *made.allocator))
    total = bytes_of_tokens(layout, tokens, settings)
    whole = tokens // page * page
    memory = MemorySpec(total, layout, 2048, 1)
    if model == "llama-3.1-8b":
        assert total == whole * layout.bytes_per_token
    elif model == "qwen3.5-4b":
        assert state_pools(memory, page, None).tokens == whole
    else:
        assert window_pools(memory, page, ratio).tokens == whole


def test_sglang_tokens_give_the_same_pool_in_a_scenario() -> None:
    """A hybrid model's tokens are about half of the bytes: its states have the other half. Beside
    paged memory, both have every token in all layers.
    """
    made = scenario("qwen3.5-4b", 60_000)
    model = made.model.build()
    cell = made.model.layout(model).bytes_per_token
    pool = pool_of(made, model, [named_device("h200")], None).pool
    assert pool.sized_by == "kv_cache_tokens"
    assert 1.85 < pool.capacity_bytes / (60_000 * cell) < 1.91
    both = (*made.allocator, Paged())
    beside = made.model_copy(update={"allocator": both})
    pool = pool_of(beside, model, [named_device("h200")], None).pool
    assert pool.capacity_bytes == 60_000 * cell


@pytest.mark.parametrize(("model", "share"), [("gemma-3-1b", 1.0), ("llama-4-scout", 0.85)])
def test_pool_bytes_of_max_total_tokens_weigh_layers_as_sglang(model: str, share: float) -> None:
    """Gemma 3's windows are kept whole. Llama 4's 36 layers with chunks have 0.8 tokens of the 12
    others each: (12 + 0.8 * 36) / 48.
    """
    made = scenario(model, 60_000)
    built = made.model.build()
    pool = pool_of(made, built, [named_device("h200")], None).pool
    cell = made.model.layout(built).bytes_per_token
    assert pool.capacity_bytes == pytest.approx(60_000 * cell * share, abs=1)
