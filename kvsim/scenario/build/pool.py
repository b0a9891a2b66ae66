"""Size the KV pool of a scenario, the same for all of its allocators."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kvsim.capacity.drafter import MTP, Drafter
from kvsim.capacity.options import MemoryOptions
from kvsim.capacity.pool import Sized, SizedPool, StageShare
from kvsim.capacity.sizing import size
from kvsim.capacity.stage import model_of, stages
from kvsim.device import Device
from kvsim.model import Model
from kvsim.model.find import is_of_file
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario
from kvsim.scenario.build.context_parallel import BLOCK_SIZE

if TYPE_CHECKING:
    from kvsim.capacity.sglang.settings import SglangSettings


class ScenarioPool(NamedTuple):
    """The pool of one GPU. stages: of a pipeline, the pool of each stage; stage: index of the stage
    that limits the pool.
    """

    pool: SizedPool
    stage: int = 0
    stages: tuple[StageShare, ...] = ()


def pool_of(
    scenario: Scenario, model: Model, devices: Sequence[Device], drafter: Drafter | None
) -> ScenarioPool:
    """The pool that the scenario's engine would allocate; InputError if it cannot. devices: device
    of each pipeline stage.
    """
    scenario.model.check_used(model)
    device = devices[0]
    scheduler, allocators = scenario.scheduler, scenario.allocator
    limits = {
        key: getattr(scheduler, key)
        for key in ("max_num_seqs", "max_num_batched_tokens")
        if hasattr(scheduler, key)
    }
    sizes = (getattr(options, "block_size", None) for options in allocators)
    block_size = next(filter(None, sizes), BLOCK_SIZE)
    memory, fraction = _rooted(scenario), scenario.memory.mem_fraction_static
    schedulers = [each.scheduler for each in allocators if each.scheduler is not None]
    flags = (*schedulers, scheduler, *allocators)
    tokens = memory.kv_cache_tokens
    radix = all(hasattr(each, "swa_full_tokens_ratio") for each in allocators)
    if radix and tokens is not None and memory.of_vllm:
        from kvsim.capacity.sglang.simulated import bytes_of_tokens, settings_of  # of radix alone
        from kvsim.capacity.sglang.sizing import sglang_layout

        layout = sglang_layout(_fullest_stage(scenario, model), scenario.model)
        total = bytes_of_tokens(layout, tokens, settings_of(memory, flags))
        update = {"kv_cache_tokens": None, "kv_cache_bytes": total}
        memory = memory.model_copy(update=update)
    if fraction is not None:
        from kvsim.capacity.sglang.simulated import settings_of, sglang_pool  # as above

        settings = settings_of(memory, flags)
        _check_ratio(scenario, model, settings)
        if drafter is not None:
            raise InputError(
                "SGLang's pool with a drafter's cache in it is not followed",
                where="memory.mem_fraction_static",
                value=fraction,
                remedy="give the pool by kv_cache_tokens alone",
            )
        return ScenarioPool(sglang_pool(model, device, scenario.model, settings, block_size))
    if scenario.memory.free_gpu_memory_fraction is not None:
        if drafter is not None:
            raise InputError(
                "TensorRT-LLM's pool with a drafter's cache in it is not followed",
                where="memory.free_gpu_memory_fraction",
                value=scenario.memory.free_gpu_memory_fraction,
                remedy="give the pool by kv_cache_tokens alone",
            )
        from kvsim.capacity.tensorrt_llm import trt_llm_pool  # few scenarios are sized by it

        return ScenarioPool(
            trt_llm_pool(model, device, scenario.model, scenario.memory, block_size, **limits)
        )
    exports = any(getattr(options, "exports_states", False) for options in allocators)
    no_groups = "disable_hybrid_kv_cache_manager"
    groups = any(getattr(options, no_groups, None) is False for options in allocators)
    sized = size(
        model,
        device,
        memory,
        scenario.model,
        block_size,
        drafter=drafter,
        stage_devices=devices,
        exports_states=exports,
        as_logged=groups and scheduler.engine_version is not None,
        **limits,
    )
    if scheduler.engine_version is not None:
        _check_states(sized)
    by_user = memory.kv_cache_tokens != tokens  # in bytes, of the tokens that were given
    pool = sized.pool._replace(sized_by="kv_cache_tokens") if by_user else sized.pool
    return ScenarioPool(pool, sized.stage, sized.stages if len(sized.stages) > 1 else ())


def _check_states(sized: Sized) -> None:
    """Raise InputError if the pool that vLLM sizes itself has too few states for vLLM to start."""
    log = sized.start_up
    if log.states_short_of is not None and sized.pool.sized_by == "gpu_memory_utilization":
        raise InputError(
            f"the engine refuses to start: {log.refusal}",
            where="scheduler.max_num_seqs",
            value=log.states_short_of,
            limit=log.num_gpu_blocks,
        )


def _check_ratio(scenario: Scenario, model: Model, settings: "SglangSettings") -> None:
    """Raise InputError for a mamba_full_memory_ratio without effect."""
    tree, because = "max_mamba_cache_size", None
    if all(group.kind != "recurrent" for group in scenario.model.layout(model).groups):
        because = "the model has no recurrent layers"
    elif settings.max_mamba_cache_size is not None:
        because = "max_mamba_cache_size of [[allocator]] is the number of states"
    elif not any(hasattr(each, tree) for each in scenario.allocator):
        because = 'only kind = "radix" has a pool of states'
    if because is not None:
        scenario.memory.refuse_idle("memory", ["mamba_full_memory_ratio"], because)


def _rooted(scenario: Scenario) -> MemoryOptions:
    """[memory] with a drafter's path relative to the scenario's folder."""
    drafter = scenario.memory.drafter
    if drafter in (None, MTP) or not is_of_file(path := str(scenario.folder / drafter)):
        return scenario.memory
    return scenario.memory.model_copy(update={"drafter": path})


def _fullest_stage(scenario: Scenario, model: Model) -> Model:
    """The layers of the pipeline stage with the most KV bytes per token; the whole model without
    stages.
    """
    shape = scenario.model
    if shape.pipeline_parallel_size == 1:
        return model
    held = stages(model.layers, shape.pipeline_parallel_size, shape.stage_layers)
    parts = [model_of(model, stage) for stage in held]
    return max(parts, key=lambda part: shape.layout(part).bytes_per_token)
