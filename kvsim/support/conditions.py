"""Conditions, values and texts that several rows of refused pairs share."""

from kvsim.support.parts import ServerParts

NO_STAGES = "take tensor_parallel_size; kvsim memory sizes the stages"
UNDRAFTED = "take tensor_parallel_size, or leave speculative_config out"
NO_LOCKSTEP = 'leave it out; vLLM\'s ranks, kind = "vllm-dp", step together with both'
CONTEXT_IN_BLOCKS = "tokens of a sequence are shared by GPUs in vLLM's blocks"
PARALLEL = "model.pipeline_parallel_size"
HOST = "allocator.enable_hierarchical_cache"


def staged(parts: ServerParts) -> bool:
    return parts.stages > 1


def drafts_over_stages(parts: ServerParts) -> bool:
    return parts.drafts and parts.stages > 1


def num_stages(parts: ServerParts) -> object:
    return parts.stages


def tier_chain(parts: ServerParts) -> object:
    return " + ".join(parts.tiers)


def layers_beyond(parts: ServerParts) -> object:
    return ", ".join(sorted(parts.layers))


def asker_of(parts: ServerParts) -> object:
    return f"request {parts.asker}"


def not_with(parts: ServerParts) -> str:
    return f"requests with {parts.special} are not simulated with it"


def is_set(_: ServerParts) -> object:
    return True


def nothing(_: ServerParts) -> object:
    return None


def num_cells(parts: ServerParts) -> object:
    return parts.cells


def two_stages(parts: ServerParts) -> bool:
    return parts.transfers != "" and parts.stages > 1


def lockstep_with(parts: ServerParts) -> str:
    beyond = "a KV connector" if parts.connector else "two steps in flight"
    beyond = "pipeline stages" if parts.stages > 1 else beyond
    beyond = "a hierarchical cache" if parts.hicache else beyond
    return f"ranks that step together are not simulated with {beyond}"


def set_option(parts: ServerParts, names: tuple[str, ...]) -> tuple[str, object]:
    """(name, value) of the first of these allocator options that is set; ("", None): none is."""
    return next((each for each in parts.options if each[0] in names), ("", None))


def cache_elsewhere(parts: ServerParts) -> str:
    """The allocator option that stores content outside the prefix cache; "": none is set."""
    name, value = set_option(parts, ("host_cache_gib", "sharing"))
    if name == "sharing":
        return "copy-on-write" if value == "copy-on-write" else ""
    return name
