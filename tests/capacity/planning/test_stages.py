"""KV cache groups of all layers, split over pipeline stages."""

from itertools import pairwise

import pytest

from kvsim.capacity.planning import Serving, plan_cache
from kvsim.model import ModelOptions

SERVING = Serving(max_model_len=8192, max_num_batched_tokens=2048)


@pytest.mark.parametrize(
    ("stages", "pages"),
    [(1, 10), (2, 5), (4, 3), (8, 2)],  # one in six layers has full attention
)
def test_pipeline_stages_share_one_layer_grouping(stages, pages):
    """Gemma 3 27B: 52 layers with windows over six groups, whatever stage each layer is on."""
    options = ModelOptions(name="gemma-3-27b")
    caches = options.caches(options.build())
    bounds = [len(caches) * stage // stages for stage in range(stages + 1)]
    whole = plan_cache(caches, SERVING)
    held = [
        plan_cache(caches, SERVING, held=range(first, last)) for first, last in pairwise(bounds)
    ]
    for plan in held:
        assert len(plan.groups) == 7
        assert plan.blocks_of(8192) == whole.blocks_of(8192)
        fullest = max(group.layers for group in plan.groups)
        assert plan.bytes_per_block == fullest * plan.groups[0].page_bytes[0]
    layers = [sum(of) for of in zip(*[[g.layers for g in p.groups] for p in held], strict=True)]
    assert layers == [group.layers for group in whole.groups]
    assert sorted(layers, reverse=True) == [10, 9, 9, 9, 9, 8, 8]
    assert max(p.bytes_per_block for p in held) == pages * whole.groups[0].page_bytes[0]


def test_stage_with_one_kind_of_layer_has_its_own_block_bytes():
    options = ModelOptions(name="llama-3.1-8b")
    caches = options.caches(options.build())
    whole, stage = plan_cache(caches, SERVING), plan_cache(caches, SERVING, held=range(20, 32))
    assert stage.bytes_per_block == whole.bytes_per_block * 12 // 32
    assert stage.groups[0].layers == 12


def test_a_drafter_is_on_the_last_stage():
    options = ModelOptions(name="llama-3.1-8b")
    caches = options.caches(options.build())
    drafter = options.caches(ModelOptions(name="llama-3.2-1b").build())
    (group,) = plan_cache(caches, SERVING, drafter, range(16, 32 + len(drafter))).groups
    assert (group.layers, group.draft_layers) == (16 + len(drafter), len(drafter))
    (group,) = plan_cache(caches, SERVING, drafter, range(16)).groups
    assert (group.layers, group.draft_layers) == (16, 0)
