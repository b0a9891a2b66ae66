"""Simulated groups of layers and blocks equal the planned ones, model by model; and equal a count
layer by layer.
"""

from random import Random

from support.planned_by_layer import plan_by_layer

from kvsim.capacity.planning import Serving, plan_cache
from kvsim.model import ModelOptions
from kvsim.model.catalogue import model_names
from kvsim.model.kv_cache import LayerCache, grouped
from kvsim.speculation import Speculation
from kvsim.vllm.grouping import group_layers, is_uniform
from kvsim.vllm.sizes import Sizes

SERVING = Serving(8192, 8192)


def check(plan, layout):
    found = group_layers(layout, 16, exports_states=plan.serving.exports_states)
    if is_uniform(layout):
        assert len(plan.groups) == len(found.groups) == 1
        assert plan.bytes_per_block == plan.block_size * layout.bytes_per_token
        return
    same = [group._replace(page_bytes=()) for group in found.groups]
    assert same == [group._replace(page_bytes=()) for group in plan.groups]
    assert found.block_size == plan.block_size
    assert found.block_bytes == found.block_size * found.slot_bytes == plan.bytes_per_block
    assert found.hit_tokens == Sizes.of(plan.groups, None, caching=True).whole


def check_by_layer(caches, serving, drafter=()):
    plan, groups = plan_cache(caches, serving, drafter), plan_by_layer(caches, drafter, serving)
    fields = ("kind", "layers", "block_size", "page_bytes", "window_tokens", "draft_layers")
    for group, like in zip(plan.groups, groups, strict=True):
        for field in (*fields, "chunk_tokens"):
            assert getattr(group, field) == getattr(like, field), field
    assert plan.bytes_per_block == max(group.bytes for group in groups)


def test_planned_blocks_equal_a_count_by_layer_for_every_catalogue_model():
    seen = 0
    for name in model_names():
        caches = ModelOptions(name=name).build().kv_caches("auto")
        if any(cache.own_block for cache in caches):
            continue
        for caching in True, False:
            check_by_layer(caches, SERVING._replace(enable_prefix_caching=caching))
        if any(cache.bytes_per_token for cache in caches):  # without attention nothing grows
            check(plan_cache(caches, SERVING), grouped(caches, by_chunk=True))
            seen += 1
    assert seen > 100


def test_prefill_checkpoints_make_blocks_multiples_of_64_tokens():
    """With prefill checkpoints, blocks are multiples of 64 tokens in the plan, a run, and both
    outputs.
    """
    seen = 0
    for name in model_names():
        caches = ModelOptions(name=name).build().kv_caches("auto")
        if any(cache.own_block for cache in caches) or not any(c.bytes_per_token for c in caches):
            continue
        if any(cache.state_bytes for cache in caches):
            check(plan_cache(caches, SERVING._replace(exports_states=True)), grouped(caches))
            seen += 1
    assert seen > 10


def test_drafter_layers_enlarge_blocks_or_share_them():
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


def random_layers(random):
    """Layers of up to three kinds, mixed."""
    token = random.choice([1, 2, 3, 6, 8, 48])
    kinds = [
        LayerCache("full", token),
        LayerCache("full", token, chunk_tokens=random.choice([64, 128])),
        LayerCache("full", token, kv_heads=2),
        LayerCache("full", random.choice([1, 2, 3, 6, 8, 48])),
        LayerCache("sliding", token, random.choice([8, 100])),
        LayerCache("sliding", random.choice([1, 2, 3, 6, 8, 48]), 100),
        LayerCache("mla", token, index_bytes=random.choice([0, 1])),
        LayerCache("mla", random.choice([1, 2, 3, 6, 8, 48])),
        LayerCache("recurrent", 0, state_bytes=random.randrange(1, 5000), drafted_bytes=7),
    ]
    chosen = random.sample(kinds, random.randint(1, 3))
    return random.choices(chosen, k=random.randint(1, 14))


def test_planned_blocks_equal_a_count_by_layer_for_random_models():
    seen, random = 0, Random(33)
    while seen < 2000:
        caches = random_layers(random)
        drafter = random.choice([[], random_layers(random)])
        every = [*caches, *drafter]
        states = {cache.state_bytes for cache in every if cache.state_bytes}
        if any(cache.kind == "mla" for cache in every) and any(c.chunk_tokens for c in every):
            continue  # no model has both
        if len(states) > 1 and not any(cache.bytes_per_token for cache in every):
            continue  # nor states of different sizes alone
        serving = Serving(
            4096,
            512,
            random.choice([None, 4, 16, 48]),
            random.random() < 0.5,
            exports_states=random.random() < 0.5,
            speculation=random.choice([None, Speculation("mtp", 3), Speculation("ngram", 2)]),
        )
        check_by_layer(caches, serving, drafter)
        seen += 1
