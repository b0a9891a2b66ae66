"""The blocks of a pipeline's layers, as the stage that decides the pool holds them.

The layers of all stages are dealt out to groups together, and each stage has its part of every
group (vLLM 0.33, v1/core/kv_cache_planning.py).
"""

from kvsim.capacity.planning.staged import on_stage
from kvsim.capacity.stage import model_of, stages
from kvsim.memory.options import AllocatorOptions
from kvsim.memory.paged.options import Paged
from kvsim.model import Model
from kvsim.model.kv_cache import grouped
from kvsim.model.options import ModelOptions
from kvsim.plumbing.errors import InputError
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
    drafts: bool = False,
) -> Grouping | None:
    """The groups and blocks of this stage; None on one stage, and where one block table does for
    the layers of all stages.

    by_chunk: blocks of local attention's chunks are given back. drafts: a drafter has layers too.
    InputError where the stage has no layer of one of the groups, or several with drafts.
    """
    if options.pipeline_parallel_size == 1 or not isinstance(allocator, Paged):
        return None
    every = stages(model.layers, options.pipeline_parallel_size, options.stage_layers)
    held = options.layout(model_of(model, every[stage]), by_chunk=by_chunk)
    one_table = is_uniform(options.layout(model, by_chunk=by_chunk))
    if one_table or allocator.disable_hybrid_kv_cache_manager:
        return None
    if drafts:
        raise InputError(
            "drafts over pipeline stages are simulated where one block table does for all layers",
            where="model.pipeline_parallel_size",
            value=options.pipeline_parallel_size,
            limit=1,
            remedy="take tensor_parallel_size, or leave speculative_config out",
        )
    if held.has_own_blocks:
        return allocator.grouping(held, rules)
    caches = options.caches(model)
    if not by_chunk:
        caches = tuple(cache._replace(chunk_tokens=None) for cache in caches)
    counts = [len(options.caches(model_of(model, each))) for each in every]
    begin = sum(counts[:stage])
    whole = allocator.grouping(grouped(caches, by_page=True), rules)
    plan = on_stage(whole, caches, (), range(begin, begin + counts[stage]))
    for place, group in enumerate(plan.groups):
        if not group.layers:
            raise InputError(
                "a stage of the pipeline has no layer of one of the groups that share the blocks",
                where="model.pipeline_parallel_size",
                value=f"stage {stage + 1} of {len(every)}, group {place + 1} of {len(plan.groups)}",
                remedy="take fewer stages, or set pp_layer_partition",
            )
    return plan
