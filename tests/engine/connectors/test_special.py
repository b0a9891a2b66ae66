"""Images and LoRA adapters with a host memory tier: k steps, hits and refusals."""

from typing import Any

import pytest
from support.scenarios import conversations, run

from kvsim.plumbing.errors import InputError

HOST = {"kind": "vllm-offloading", "kv_offloading_size": 8.0}
IMAGES = [
    {
        "tokens": {"kind": "uniform", "min_tokens": 64, "max_tokens": 500},
        "count": 6,
        "share": 0.7,
        "per_prompt": {"kind": "uniform", "min_tokens": 1, "max_tokens": 2},
    }
]


def tables(**workload: Any) -> dict[str, Any]:
    """Conversations with images or adapters; the pool holds three of them."""
    shorter = {
        "prompt": {"kind": "uniform", "min_tokens": 300, "max_tokens": 900},
        "think": {"kind": "exponential", "mean_s": 2.0},
    }
    return {
        **conversations(20_000, **shorter, **workload),
        "scheduler": {
            "kind": "continuous",
            "max_num_batched_tokens": 2048,
            "max_loras": 2,
            "lora_load_ms": 3.0,
            "encoder_us_per_token": 5.0,
            "encoder_cache_size": 1200,
        },
        "tier": [HOST],
    }


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize(
    "tier",
    [
        HOST | {"sync_load_budget_bytes": 0},
        HOST | {"sync_load_budget_bytes": 1 << 30},
        HOST | {"kind": "vllm-simple-offloading"},
    ],
    ids=["waits", "at once", "simple"],
)
def test_k_steps_equal_single_steps_with_images_and_adapters(
    *, overlaps: bool, tier: dict[str, Any]
) -> None:
    table = tables(items=IMAGES, adapters={"count": 4})
    table["scheduler"] |= {"async_scheduling": overlaps, "max_loras": 1}
    table["tier"] = [tier]
    together, singly = run(table), run(table | {"max_steps": 1})
    assert together.simulated() == singly.simulated()
    assert together.prefix_cache.host_hit_tokens
    assert together.adapters is not None
    assert together.adapters.delayed
    assert together.encoder is not None


def test_host_memory_finds_blocks_by_adapter() -> None:
    """All turns of a conversation use one adapter, so the number of hits equals that without
    adapters.
    """
    found = [run(tables(**each)) for each in ({}, {"adapters": {"count": 1}})]
    plain, adapted = (each.prefix_cache for each in found)
    assert plain.host_hit_tokens > 0
    assert adapted.hit_tokens == pytest.approx(plain.hit_tokens, rel=0.05)


def test_image_with_loaded_kv_is_not_encoded() -> None:
    """An image whose KV is loaded as a whole is not encoded again."""
    with_tier, without = tables(items=IMAGES), tables(items=IMAGES)
    without["tier"] = []
    spared, computed = run(with_tier).encoder, run(without).encoder
    assert spared is not None
    assert computed is not None
    assert spared.encoded_tokens < computed.encoded_tokens


@pytest.mark.parametrize(
    "tier",
    [
        [HOST, {"kind": "file-system"}],
        [{"kind": "lmcache", "max_local_cpu_size": 1.0}],
    ],
)
@pytest.mark.parametrize("workload", [{"items": IMAGES}, {"adapters": {"count": 2}}])
def test_tiers_without_image_or_adapter_support_refuse_such_requests(
    tier: list[dict[str, Any]], workload: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=r"not simulated with it.*vllm-offloading"):
        run(tables(**workload) | {"tier": tier})


def test_image_that_no_chunk_can_hold_is_an_error() -> None:
    """vLLM runs for ever where a whole image is longer than the longest chunk of a prompt."""
    table = tables(items=IMAGES)
    table["scheduler"] |= {
        "disable_chunked_mm_input": True,
        "long_prefill_token_threshold": 100,
    }
    with pytest.raises(InputError, match=r"waits for ever.*long_prefill_token_threshold"):
        run(table)
