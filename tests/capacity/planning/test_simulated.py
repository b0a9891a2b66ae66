"""What is planned is simulated: the same groups of layers in the same blocks, model by model."""

from kvsim.capacity.planning import Serving, plan_cache
from kvsim.model import ModelOptions
from kvsim.model.catalogue import model_names
from kvsim.model.kv_cache import grouped
from kvsim.vllm.grouping import group_layers, is_uniform
from kvsim.vllm.sizes import Sizes

SERVING = Serving(8192, 8192)


def check(plan, layout):
    if is_uniform(layout, windows=True):
        assert len(plan.groups) == 1
        assert plan.bytes_per_block == plan.block_size * layout.bytes_per_token
        return
    found = group_layers(layout, 16, exports_states=plan.serving.exports_states)
    assert [(group.kind, group.layers, group.block_size) for group in found.groups] == [
        (group.kind, group.layers, group.block_size) for group in plan.groups
    ]
    assert found.block_size == plan.block_size
    assert found.block_size * found.slot_bytes == plan.bytes_per_block
    assert found.hit_tokens == plan.units.scheduler_block_size
    sizes = Sizes.of(found.groups, None, caching=True)
    assert (sizes.whole, sizes.match, sizes.aligned) == plan.units[:3]


def test_every_model_of_the_catalogue():
    seen = 0
    for name in model_names():
        caches = ModelOptions(name=name).build().kv_caches("auto")
        # Without attention nothing grows; what is packed or chunked, no allocator here hands out.
        if any(cache.own_block or cache.chunk_tokens for cache in caches):
            continue
        if any(cache.bytes_per_token for cache in caches):
            check(plan_cache(caches, SERVING), grouped(caches))
            seen += 1
    assert seen > 100


def test_states_that_prefill_writes_out_within_chunks():
    """Blocks are multiples of 64 tokens then, in the plan, in a run and in what both print."""
    seen = 0
    for name in model_names():
        caches = ModelOptions(name=name).build().kv_caches("auto")
        if any(cache.own_block for cache in caches) or not any(c.bytes_per_token for c in caches):
            continue
        if any(cache.state_bytes for cache in caches):
            check(plan_cache(caches, SERVING._replace(exports_states=True)), grouped(caches))
            seen += 1
    assert seen > 10


def test_drafters_with_pages_of_their_own():
    """Small drafters coarsen; full attention beside MLA is one group of both."""
    for target, drafter, sizes in (
        ("gemma-4-31b", "gemma-3-1b", {16, 32, 256}),  # 16, 8 and 1 KiB a token and layer
        ("gemma-3-27b", "gemma-3-1b", {16, 128}),  # 8 KiB and 1
        ("deepseek-v3", "llama-3.2-1b", {16}),
    ):
        caches = ModelOptions(name=target).build().kv_caches("auto")
        drafted = ModelOptions(name=drafter).build().kv_caches("auto")
        plan = plan_cache(caches, SERVING, drafted)
        assert {group.block_size for group in plan.groups} == sizes, target
        check(plan, grouped(caches, drafted))
