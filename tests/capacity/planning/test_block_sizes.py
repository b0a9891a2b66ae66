"""Block sizes that vLLM logs for hybrid models, from their shapes; a drafter's coarse blocks."""

import pytest

from kvsim.capacity.planning import Serving, Speculation, plan_cache
from kvsim.model import ModelOptions
from kvsim.vllm.sizes import Sizes

# model, KV dtype, states, drafted tokens, exported states, block: seen in vLLM's start-up lines.
SEEN = [
    ("qwen3.5-4b", "auto", None, 0, False, 528),
    ("qwen3.5-27b", "auto", None, 0, False, 784),
    ("qwen3.5-35b-a3b", "auto", None, 0, False, 1056),
    ("qwen3.5-27b", "fp8", None, 0, False, 1568),
    ("qwen3.5-27b", "fp8", None, 3, False, 1600),
    ("qwen3.5-35b-a3b", "fp8", None, 3, False, 2144),
    ("qwen3.5-35b-a3b", "auto", None, 2, False, 1072),
    ("qwen3.5-35b-a3b", "auto", None, 3, False, 1072),
    ("qwen3-next-80b-a3b", "auto", "bfloat16", 0, False, 544),
    ("qwen3.5-35b-a3b", "auto", None, 0, True, 1088),
    ("qwen3.5-27b", "fp8", None, 0, True, 1600),
    ("nemotron-3-nano-30b-a3b", "auto", "float16", 0, False, 1072),
]


def plan(name, dtype="auto", states=None, drafted=0, exports=False, drafter=()):
    options = ModelOptions(name=name, kv_cache_dtype=dtype, mamba_ssm_cache_dtype=states)
    speculation = Speculation("mtp", drafted) if drafted else None
    serving = Serving(8192, 2048, exports_states=exports, speculation=speculation)
    return plan_cache(options.caches(options.build()), serving, drafter)


@pytest.mark.parametrize(("name", "dtype", "states", "drafted", "exports", "block"), SEEN)
def test_block_sizes_equal_logged_ones(name, dtype, states, drafted, exports, block):
    assert plan(name, dtype, states, drafted, exports).block_size == block


def test_tensor_parallelism_splits_states_and_kv_heads_in_block_sizes():
    options = ModelOptions(name="qwen3.5-27b", tensor_parallel_size=2)
    found = plan_cache(options.caches(options.build()), Serving(8192, 2048))
    assert found.block_size == 784
    assert found.bytes_per_block * 2 == plan("qwen3.5-27b").bytes_per_block


def test_small_drafter_has_more_tokens_per_block():
    """Gemma-3-27B drafted by the 1B: 128 tokens where the target has 16."""
    options = ModelOptions(name="gemma-3-1b")
    drafter = options.caches(options.build())
    found = plan("gemma-3-27b", drafter=drafter)
    assert {group.block_size for group in found.groups if group.draft_layers} == {128}
    assert {group.block_size for group in found.groups if not group.draft_layers} == {16}
    sizes = Sizes.of(found.groups, None, caching=True)
    assert sizes.whole == sizes.aligned == 128


def test_layers_are_assigned_to_groups_round_robin():
    groups = plan("gemma-3-27b").groups
    assert [(group.kind, group.layers) for group in groups] == [
        *[("sliding", 9)] * 4,
        *[("sliding", 8)] * 2,
        ("full", 10),
    ]


def test_blocks_of_local_attention_chunks_are_freed():
    """Llama 4 Scout: 36 local layers in three groups beside 12 that see everything, as vLLM
    0.33.0's own planner deals them out; before 0.14, and under a drafter of its states, one.
    """
    options = ModelOptions(name="llama-4-scout")
    caches = options.caches(options.build())
    found = plan_cache(caches, Serving(1_000_000, 8192))
    assert [(group.layers, group.chunk_tokens) for group in found.groups] == [
        *[(12, 8192)] * 3,
        (12, None),
    ]
    assert found.blocks_of(1_000_000) == 3 * (8192 + 2 * 8192) // 16 + 1_000_000 // 16
    assert found.blocks_of(4096) == 4 * 4096 // 16
    before = plan_cache(caches, Serving(1_000_000, 8192, frees_chunks=False))
    assert (len(before.groups), before.blocks_of(1_000_000)) == (1, 62_500)
    drafted = Serving(1_000_000, 8192, speculation=Speculation("eagle", 2))
    assert len(plan_cache(caches, drafted).groups) == 1


def test_sparse_mla_has_larger_blocks():
    assert plan("deepseek-v3.2").block_size == 64
    assert plan("deepseek-v3").block_size == 16
