"""Notes on a scenario that are known before the run: pool size and keys without effect."""

from collections.abc import Sequence
from functools import partial

from kvsim.capacity.drafter import MTP, Drafter
from kvsim.capacity.options import WAYS, MemoryOptions
from kvsim.capacity.pool import SizedPool, StageShare, unlike_stages
from kvsim.device import Device
from kvsim.memory import ALLOCATORS
from kvsim.memory.options import AllocatorOptions, MemorySpec
from kvsim.model import Model
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.probing import decides
from kvsim.scenario import Scenario
from kvsim.scenario.build.pool import ScenarioPool, pool_of
from kvsim.scenario.checks.unused_keys import idle_keys
from kvsim.step_time.kernels.options import ComposedOptions
from kvsim.vllm.versions import newer_than_known

_EAGER = (
    "enforce_eager changes the size of the pool alone: this kind of step time does not count that "
    "a server without CUDA graphs launches its kernels one by one (auto, kernels and fitted do)"
)
_UNHEEDED = (
    "priorities of requests change nothing here: neither the scheduler's policy, nor its victim, "
    "nor an eviction policy goes by them"
)
# By model_type, families of whose checkpoints none has an MTP layer: vLLM 0.33 makes no drafter of
# them (config/speculative.py, hf_config_override).
_WITHOUT_MTP = frozenset(
    [
        "bloom",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "gpt_oss",
        "gptj",
        "granite",
        "llama",
        "llama4_text",
        "mistral",
        "mixtral",
        "mpt",
        "olmo",
        "olmo2",
        "olmo3",
        "olmoe",
        "opt",
        "phi",
        "phi3",
        "phimoe",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "stablelm",
        "starcoder2",
    ]
)
_NO_MTP = (
    "{} has no MTP layer: vLLM would refuse method = mtp. A layer like the target's last one is "
    "simulated"
)
_COUNTED = (
    "All requests together may hold {:,} tokens, the longest sequence, though tokens take no "
    "memory here: SGLang counts them. memory.kv_cache_tokens beside mem_fraction_static gives more"
)
_ROOM = "give memory.max_loras instead of scheduler.max_loras"
_FIXED = ("kv_cache_bytes", "kv_cache_tokens", "num_gpu_blocks")


def known_before(
    scenario: Scenario,
    model: Model,
    devices: Sequence[Device],
    drafter: Drafter | None,
    pool: SizedPool,
    stages: Sequence[StageShare] = (),
    *,
    adapters: bool,
    priorities: bool,
) -> tuple[tuple[str, str], ...]:
    """(topic, sentence) of each note: the device cannot hold the pool, or keys have no effect on
    results or step times.

    devices, stages: device and pool of each pipeline stage. adapters: requests may use LoRA
    adapters. priorities: requests differ in priority.
    """
    found = [
        ("pool", each)
        for each in (pool.over_device(devices[0].name, stages), unlike_stages(stages))
        if each is not None
    ]
    if counted := _counted_tokens(scenario, model):
        found.append(("pool", _COUNTED.format(counted)))
    newer = newer_than_known(scenario.memory.engine_version) if scenario.memory.of_vllm else None
    found += [("pool", newer)] if newer else []
    if pool.sized_by == "gpu_memory_utilization" and (most := _without_room(scenario)):
        found.append(("pool", f"The pool was sized without room for {most} LoRA adapters: {_ROOM}"))
    if drafter is not None and drafter.method == MTP and model.kind in _WITHOUT_MTP:
        found.append(("engine", _NO_MTP.format(model.name)))
    keys = idle_memory_keys(scenario, model, devices, drafter)
    limited = adapters and _limits_adapters(scenario)
    idle = [f"memory.{key}" for key in keys if key != "max_loras" or not limited]
    if idle:
        change = "changes" if len(idle) == 1 else "change"
        because = f": {pool.sized_by} fixes the pool" if pool.sized_by in _FIXED else ""
        found.append(("idle-keys", f"{', '.join(idle)} {change} nothing here{because}"))
    for key, reason in idle_keys(scenario):
        found.append(("idle-keys", f"{key} changes nothing here: {reason}"))
    timed = isinstance(scenario.step_time, ComposedOptions)
    if scenario.memory.enforce_eager and "memory.enforce_eager" not in idle and not timed:
        found.append(("step-time", _EAGER))
    if priorities and not _heeds_priorities(scenario):
        found.append(("idle-keys", _UNHEEDED))
    return tuple(found)


def _counted_tokens(scenario: Scenario, model: Model) -> int | None:
    """A note on the tokens that SGLang counts for a model with only recurrent layers, if they are
    not given.
    """
    radix = any(ALLOCATORS.name_of(each) == "radix" for each in scenario.allocator)
    given = scenario.memory.kv_cache_tokens is not None
    if given or not radix or scenario.model.layout(model).bytes_per_token:
        return None
    from kvsim.capacity.sglang.sizing import context_of  # of radix alone

    return context_of(model, scenario.model)


def cache_left_off(options: AllocatorOptions, memory: MemorySpec) -> tuple[tuple[str, str], ...]:
    """A note that the engine's version disables the prefix cache for this model by default."""
    key = "enable_prefix_caching"
    if not getattr(options, key, False) or getattr(options.resolved(memory), key):
        return ()
    name = memory.rules.name
    if not memory.rules.keeps_states:
        return (("prefix-cache", f"Prefix caching is off: {name} has none for recurrent layers"),)
    only = f"{name} caches prefixes of this model only where allocator.{key} = true"
    return (("prefix-cache", f"Prefix caching is off: {only}"),)


def idle_memory_keys(
    scenario: Scenario, model: Model, devices: Sequence[Device], drafter: Drafter | None
) -> tuple[str, ...]:
    """Keys of [memory] that were given and have no effect, with any value.

    These keys affect neither the pool nor the version's rules for chunks of local attention.
    """
    memory, left_out, shape = scenario.memory, _left_out(scenario), scenario.model
    in_chunks = shape.layout(model, by_chunk=True) != shape.layout(model)

    def decided(options: MemoryOptions) -> object:
        found = _pool_under(scenario, options, model, devices, drafter)
        held = found and (found.pool.simulated, found.stage, found.stages)
        return held, in_chunks and options.version.sizing.frees_chunks

    given = decided(memory)

    def differs(key: str, value: object) -> bool:
        return decided(memory.model_copy(update={key: value})) != given

    return tuple(
        key
        for key, value in left_out.items()
        if key not in WAYS
        and getattr(memory, key) != value
        and not differs(key, value)
        and not (key != "engine_version" and decides(getattr(memory, key), partial(differs, key)))
    )


def _heeds_priorities(scenario: Scenario) -> bool:
    """Whether a scheduler or a prefix cache uses the priorities of requests."""
    groups = scenario.fleet is not None and scenario.fleet.group
    if groups or scenario.disaggregation is not None:
        return True
    schedulers = [scenario.scheduler_of(each) for each in scenario.allocator]
    evicting = [getattr(each, "eviction_policy", None) for each in scenario.allocator]
    rules = [each for each in (*evicting, *(one.victim for one in schedulers)) if each is not None]
    ordered = any(each.order == "priority" for each in schedulers)
    return ordered or any(each.by_priority for each in rules)


def _left_out(scenario: Scenario) -> dict[str, object]:
    """The default of each key of [memory]."""
    fields = MemoryOptions.model_fields
    version = scenario.scheduler_of(scenario.allocator[0]).engine_version
    found = {key: field.default for key, field in fields.items()}
    return found if version is None else {**found, "engine_version": version}


def _without_room(scenario: Scenario) -> int:
    """The number of concurrent adapters that the schedulers allow, if [memory] reserves no room for
    adapters; else 0.
    """
    schedulers = (scenario.scheduler_of(each) for each in scenario.allocator)
    return 0 if scenario.memory.max_loras else max(each.most_adapters for each in schedulers)


def _limits_adapters(scenario: Scenario) -> bool:
    """Whether a scheduler takes its limit of adapters from [memory]."""
    schedulers = [scenario.scheduler_of(each) for each in scenario.allocator]
    count = scenario.memory.max_loras
    return any(each.with_adapters(count) != each for each in schedulers)


def _pool_under(
    scenario: Scenario,
    memory: MemoryOptions,
    model: Model,
    devices: Sequence[Device],
    drafter: Drafter | None,
) -> ScenarioPool | None:
    """The pool of the scenario with another [memory] table; None if there is no such pool."""
    try:
        return pool_of(scenario.model_copy(update={"memory": memory}), model, devices, drafter)
    except InputError:
        return None
