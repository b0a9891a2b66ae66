"""Layer groups and blocks of a pipeline stage.

The layers of all stages are grouped together, and each stage has its part of every group (vLLM
0.33, v1/core/kv_cache_planning.py).
"""

from kvsim.capacity.drafter import Drafter
from kvsim.capacity.planning.staged import on_stage
from kvsim.capacity.stage import model_of, stages
from kvsim.layout import KVLayout
from kvsim.memory.options import AllocatorOptions
from kvsim.memory.paged.options import Paged
from kvsim.model import Model
from kvsim.model.kv_cache import LayerCache, grouped, widened
from kvsim.model.options import ModelOptions
from kvsim.plumbing.errors import InputError
from kvsim.support.parts import ServerParts
from kvsim.support.table import check
from kvsim.vllm.grouping import Grouping, is_uniform
from kvsim.vllm.rules import BlockRules


def staged_plan(
    allocator: AllocatorOptions,
    options: ModelOptions,
    model: Model,
    stage: int,
    rules: BlockRules,
    *,
    by_chunk: bool,
    drafter: Drafter | None = None,
) -> Grouping | None:
    """The groups and blocks of this stage; None without a pipeline, and if the layers of all stages
    share one block table.

    by_chunk: whether chunks of local attention are freed. drafter: its layers are on the last
    stage. InputError if the stage has no layer of one of the groups.
    """
    if options.pipeline_parallel_size == 1 or not isinstance(allocator, Paged):
        return None
    every = stages(model.layers, options.pipeline_parallel_size, options.stage_layers)
    held = options.layout(model_of(model, every[stage]), by_chunk=by_chunk)
    one_table = is_uniform(_layout(options, model, drafter, by_chunk=by_chunk))
    if one_table or allocator.disable_hybrid_kv_cache_manager:
        return None
    drafted_over = ServerParts(stages=len(every), drafts=drafter is not None)
    if held.has_own_blocks:
        check(drafted_over._replace(layers=frozenset(("own blocks",))))
        return allocator.grouping(held, rules)
    if drafter is not None:
        check(drafted_over._replace(one_pass=drafter.speculation.rules.block_queries, tables=2))
    caches, drafted = options.caches(model), tuple[LayerCache, ...]()
    if drafter is not None:
        drafted = drafter.caches_beside(model, options)
        caches = tuple(widened(caches, drafter.tokens))
    if not by_chunk:
        caches = tuple(cache._replace(chunk_tokens=None) for cache in caches)
        drafted = tuple(cache._replace(chunk_tokens=None) for cache in drafted)
    counts = [len(options.caches(model_of(model, each))) for each in every]
    begin = sum(counts[:stage])
    end = begin + counts[stage] + (len(drafted) if stage == len(every) - 1 else 0)
    whole = allocator.grouping(grouped(caches, drafted, by_page=True), rules)
    plan = on_stage(whole, caches, drafted, range(begin, end))
    for place, group in enumerate(plan.groups):
        if not group.layers:
            raise InputError(
                "a stage of the pipeline has no layer of one of the groups that share the blocks",
                where="model.pipeline_parallel_size",
                value=f"stage {stage + 1} of {len(every)}, group {place + 1} of {len(plan.groups)}",
                remedy="take fewer stages, or set pp_layer_partition"
                + (", or leave speculative_config out" if drafted else ""),
            )
    # Which groups draft is said of all stages together.
    groups = zip(plan.groups, whole.groups, strict=True)
    drafting = tuple(own._replace(draft_layers=of_all.draft_layers) for own, of_all in groups)
    return plan._replace(groups=drafting)


def _layout(
    options: ModelOptions, model: Model, drafter: Drafter | None, *, by_chunk: bool
) -> KVLayout:
    """The layers of all stages."""
    if drafter is None:
        return options.layout(model, by_chunk=by_chunk)
    return drafter.layout(model, options, model, by_chunk=by_chunk)
