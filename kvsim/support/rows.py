"""Pairs of parts that do not run together, in the order of the checks."""

from kvsim.support.pair import RefusedPair
from kvsim.support.parts import (
    CELLS,
    CHANGES,
    CONNECTORS,
    CONTEXT,
    DRAFTS,
    HICACHE,
    INSIDE_BLOCKS,
    LOCKSTEP,
    OLDER,
    SHARED,
    SPECIAL,
    STAGES,
    SWAP,
    TIERS,
    TRANSFERS,
    ServerParts,
)

# --- conditions and values ----------------------------------------------------------------------


def _staged(parts: ServerParts) -> bool:
    return parts.stages > 1


def _drafts_over_stages(parts: ServerParts) -> bool:
    return parts.drafts and parts.stages > 1


def _num_stages(parts: ServerParts) -> object:
    return parts.stages


def _chain(parts: ServerParts) -> object:
    return " + ".join(parts.tiers)


def _layers(parts: ServerParts) -> object:
    return ", ".join(sorted(parts.layers))


def _asker(parts: ServerParts) -> object:
    return f"request {parts.asker}"


def _not_with(parts: ServerParts) -> str:
    return f"requests with {parts.special} are not simulated with it"


def _is_set(_: ServerParts) -> object:
    return True


def _nothing(_: ServerParts) -> object:
    return None


def _cells(parts: ServerParts) -> object:
    return parts.cells


def _two_stages(parts: ServerParts) -> bool:
    return parts.transfers != "" and parts.stages > 1


def _in_common(parts: ServerParts) -> str:
    beyond = "tiers" if parts.connector else ""
    beyond = "a hierarchical cache" if parts.hicache else beyond
    beyond = "two steps in flight" if parts.depth > 1 else beyond
    return f"ranks that step together are not simulated with {beyond}"


NO_STAGES = "take tensor_parallel_size; kvsim memory sizes the stages"
UNDRAFTED = "take tensor_parallel_size, or leave speculative_config out"
NO_LOCKSTEP = (
    "leave it out; async_scheduling = false, or under SGLang disable_overlap_schedule = true, has "
    "one step in flight"
)
CONTEXT_IN_BLOCKS = "tokens of a sequence are shared by GPUs in vLLM's blocks, without drafts"
PARALLEL = "model.pipeline_parallel_size"
HOST = "allocator.enable_hierarchical_cache"

ROWS: tuple[RefusedPair, ...] = (
    # --- stages of a pipeline
    RefusedPair(
        STAGES,
        TRANSFERS,
        _two_stages,
        "prefill and decode replicas run on one pipeline stage each",
        PARALLEL,
        _num_stages,
        "take tensor_parallel_size, or leave disaggregation out",
        limit=1,
        by="vLLM 0.33 on the decode side, and on both with windows, chunks or states",
    ),
    RefusedPair(
        STAGES,
        "tiers other than `vllm-offloading` alone",
        lambda parts: _staged(parts) and bool(parts.tiers) and STAGES not in parts.serves,
        "over pipeline stages, host memory alone is simulated",
        "tier",
        _chain,
        '[[tier]] kind = "vllm-offloading" alone, or tensor_parallel_size in place of the stages',
    ),
    RefusedPair(
        STAGES,
        "a KV connector that copies on one device alone",
        lambda parts: _staged(parts) and parts.connector and STAGES not in parts.serves,
        "a KV connector: simulated on one pipeline stage alone",
        PARALLEL,
        _num_stages,
        NO_STAGES,
        limit=1,
    ),
    RefusedPair(
        STAGES,
        HICACHE,
        lambda parts: _staged(parts) and parts.hicache,
        "a hierarchical cache: simulated on one pipeline stage alone",
        PARALLEL,
        _num_stages,
        NO_STAGES,
        limit=1,
    ),
    RefusedPair(
        STAGES,
        "windows or states without vLLM's plan of blocks",
        lambda parts: _staged(parts) and parts.unplanned,
        "layers with a window or a state: simulated on one pipeline stage alone",
        PARALLEL,
        _num_stages,
        NO_STAGES,
        limit=1,
    ),
    RefusedPair(
        STAGES,
        "asynchronous scheduling of " + OLDER,
        lambda parts: _staged(parts) and parts.ahead and parts.semantics != "",
        "over several pipeline stages asynchronous scheduling is simulated as vLLM 0.33 has it",
        "scheduler.semantics",
        lambda parts: parts.semantics,
        "vllm-0.33, or async_scheduling = false",
    ),
    RefusedPair(
        STAGES,
        SWAP,
        lambda parts: _staged(parts) and parts.swaps and not parts.connector,
        "over several pipeline stages sequences are recomputed, not swapped",
        "scheduler.preemption_mode",
        lambda _: "swap",
        "recompute",
    ),
    RefusedPair(
        STAGES,
        "step times of whole models: `linear`, `calibrated`",
        lambda parts: _staged(parts) and parts.whole_form != "",
        "this form times whole models, and a pipeline stage computes a part of one",
        "step_time.kind",
        lambda parts: parts.whole_form,
        'kind = "auto", "kernels", "fitted" or "roofline"',
    ),
    RefusedPair(
        STAGES,
        "schedulers other than `continuous`",
        lambda parts: _staged(parts) and STAGES not in parts.schedules,
        "this scheduler is simulated on one pipeline stage",
        PARALLEL,
        _num_stages,
        'scheduler.kind = "continuous", or tensor_parallel_size',
        limit=1,
    ),
    # --- drafts
    RefusedPair(
        DRAFTS,
        "schedulers other than `continuous`",
        lambda parts: parts.drafts and DRAFTS not in parts.schedules,
        "this scheduler verifies no drafted tokens",
        "scheduler.kind",
        _nothing,
        'kind = "continuous", or leave speculative_config out',
    ),
    RefusedPair(
        DRAFTS,
        "allocators other than `paged`",
        lambda parts: parts.drafts and parts.no_slots,
        "this allocator has no slots for tokens drafted ahead",
        "allocator.kind",
        _nothing,
        'kind = "paged", or leave speculative_config out',
    ),
    RefusedPair(
        DRAFTS,
        "`async_scheduling = false` over stages",
        lambda parts: _drafts_over_stages(parts) and not parts.ahead,
        "over several pipeline stages drafts are simulated under asynchronous scheduling: without "
        "it, vLLM 0.33 schedules drafts before the token that they follow",
        "scheduler.async_scheduling",
        lambda _: False,
        "async_scheduling = true, the default of vllm serve",
        limit=True,
    ),
    RefusedPair(
        DRAFTS,
        "stages of DeepSeek-V4",
        lambda parts: _drafts_over_stages(parts) and "own blocks" in parts.layers,
        "drafts over pipeline stages are not simulated for caches with blocks of their own",
        PARALLEL,
        _num_stages,
        UNDRAFTED,
        limit=1,
    ),
    RefusedPair(
        "dflash",
        "stages with several block tables",
        lambda parts: _drafts_over_stages(parts) and parts.one_pass and parts.tables > 1,
        "drafts over pipeline stages are not simulated for dflash with several block tables",
        PARALLEL,
        _num_stages,
        UNDRAFTED,
        limit=1,
    ),
    RefusedPair(
        DRAFTS,
        "tiers other than `vllm-offloading` alone",
        lambda parts: parts.drafts and bool(parts.tiers) and DRAFTS not in parts.serves,
        "tokens drafted ahead are simulated in front of host memory alone",
        "tier",
        _chain,
        '[[tier]] kind = "vllm-offloading" alone, or leave it or speculative_config out',
    ),
    RefusedPair(
        DRAFTS,
        "tiers with several block tables, or of dflash",
        lambda parts: parts.drafts and bool(parts.tiers) and (parts.tables > 1 or parts.one_pass),
        "tokens drafted ahead are simulated in front of host memory with one block table, and not "
        "by dflash",
        "tier",
        _chain,
        "leave [[tier]] or speculative_config out",
    ),
    RefusedPair(
        DRAFTS,
        TRANSFERS,
        lambda parts: parts.drafts and parts.transfers != "",
        "prefill and decode engines that draft tokens are not simulated",
        "speculative_config",
        _nothing,
        "leave speculative_config or disaggregation out",
    ),
    # --- tiers
    RefusedPair(
        TIERS,
        "allocators other than `paged`",
        lambda parts: bool(parts.tiers) and parts.allocator != "paged",
        "a tier needs blocks of paged memory",
        "allocator.kind",
        lambda parts: parts.allocator,
        'kind = "paged", or leave [[tier]] out',
    ),
    RefusedPair(
        TIERS,
        '`host_cache_gib`, `sharing = "copy-on-write"`',
        lambda parts: bool(parts.tiers) and parts.key in ("host_cache_gib", "sharing"),
        "a tier takes the place of host_cache_gib, and shares through the prefix cache",
        "allocator",
        lambda parts: parts.value,
        "leave it out",
    ),
    RefusedPair(
        TIERS,
        "`prefix_match_unit`, `prefill_checkpoint_alignment`",
        lambda parts: bool(parts.tiers) and parts.key in INSIDE_BLOCKS,
        "hits inside blocks, and states that prefill writes within a chunk, are not simulated with "
        "tiers",
        lambda parts: f"allocator.{parts.key}",
        lambda parts: parts.value,
        "leave it out, or leave [[tier]] out",
    ),
    RefusedPair(
        TIERS,
        "recurrent states without `enable_prefix_caching`",
        lambda parts: bool(parts.tiers) and parts.key == "enable_prefix_caching",
        "a tier finds recurrent states where the device keeps them",
        "allocator.enable_prefix_caching",
        lambda parts: parts.value,
        "set it to true, or leave [[tier]] out",
        by="vLLM, which has no chunk to store",
    ),
    RefusedPair(
        TIERS,
        "DeepSeek-V4",
        lambda parts: bool(parts.tiers) and "own blocks" in parts.layers,
        "tiers of caches with blocks of their own are not simulated",
        "tier",
        lambda _: "tier",
        "leave [[tier]] out, or take another model",
    ),
    RefusedPair(
        TIERS,
        "P/D: kinds other than `vllm-offloading` and `file-system`",
        lambda parts: parts.transfers != "" and bool(parts.tiers) and TRANSFERS not in parts.serves,
        "this tier is not simulated on prefill replicas",
        lambda parts: f"tier.{parts.place}.kind",
        _chain,
        'kind = "vllm-offloading", or leave [[tier]] or disaggregation out',
        limit="vllm-offloading, and file-system after it",
    ),
    RefusedPair(
        CONNECTORS,
        "schedulers other than `continuous`",
        lambda parts: parts.connector and CONNECTORS not in parts.schedules,
        "this scheduler moves no KV to tiers or to other engines",
        "scheduler.kind",
        _nothing,
        'kind = "continuous", or leave [[tier]] out',
    ),
    RefusedPair(
        CONNECTORS,
        OLDER,
        lambda parts: parts.connector and parts.semantics != "",
        "tiers, and prefill and decode replicas, are simulated as vLLM 0.33 has them",
        "scheduler.semantics",
        lambda parts: parts.semantics,
        "vllm-0.33",
    ),
    RefusedPair(
        CONNECTORS,
        SWAP,
        lambda parts: parts.connector and parts.swaps,
        "an engine with tiers, or of prefill or decode replicas, recomputes what it preempts",
        "scheduler.preemption_mode",
        lambda _: "swap",
        "recompute",
        by="vLLM V1, which never swaps",
    ),
    # --- tiers that replicas share
    RefusedPair(
        SHARED,
        TRANSFERS,
        lambda parts: parts.shared != "" and parts.transfers != "",
        "prefill replicas share no tier",
        lambda parts: parts.shared,
        _is_set,
        "leave it or disaggregation out",
    ),
    RefusedPair(
        SHARED,
        "one replica",
        lambda parts: parts.shared != "" and parts.alone,
        "one replica shares its tiers with no other",
        lambda parts: parts.shared,
        _is_set,
        "leave it out, or give the scenario fleet.replicas",
    ),
    RefusedPair(
        SHARED,
        CELLS,
        lambda parts: parts.shared != "" and parts.cells > 1,
        "replicas of different cells share no tier",
        "fleet.cells",
        _cells,
        "leave fleet.cells out, or let them share none",
    ),
    # --- prefill and decode replicas
    RefusedPair(
        TRANSFERS,
        "schedulers of two kinds, or other than `continuous` and `sglang`",
        lambda parts: parts.transfers == "other",
        "prompts go from one replica to another under vLLM's and SGLang's schedulers",
        "disaggregation",
        lambda parts: parts.schedulers,
        'scheduler.kind = "continuous" or "sglang" on both sides',
    ),
    RefusedPair(
        TRANSFERS,
        "`[[fleet.failure]]` of such a replica",
        lambda parts: parts.failure != "" and parts.transfers != "",
        "a failure within prefill and decode replicas is not simulated",
        lambda parts: parts.failure,
        lambda parts: parts.dies,
        "leave [disaggregation] or the failure out",
    ),
    RefusedPair(
        TRANSFERS,
        "allocators other than `paged` under vLLM",
        lambda parts: parts.transfers == "vllm" and parts.allocator != "paged",
        "vLLM sends blocks of its pool from one engine to another",
        "allocator.kind",
        lambda parts: parts.allocator,
        'kind = "paged"',
    ),
    RefusedPair(
        TRANSFERS,
        "allocators other than `radix` under SGLang",
        lambda parts: parts.transfers == "sglang" and parts.allocator != "radix",
        "SGLang sends pages of its pool from one engine to another",
        "allocator.kind",
        lambda parts: parts.allocator,
        'kind = "radix"',
    ),
    RefusedPair(
        TRANSFERS,
        "recurrent states under vLLM",
        lambda parts: parts.transfers == "vllm" and "states" in parts.layers,
        "prefill and decode engines of models with recurrent layers are not simulated",
        "disaggregation",
        _layers,
        "a model with keys and values in all layers",
    ),
    RefusedPair(
        TRANSFERS,
        "DeepSeek-V4 under vLLM",
        lambda parts: parts.transfers == "vllm" and "own blocks" in parts.layers,
        "prefill and decode engines of models that have caches in blocks of their own are not "
        "simulated",
        "disaggregation",
        _layers,
        "another model",
    ),
    RefusedPair(
        TRANSFERS,
        "chunks of local attention (Llama 4) under vLLM",
        lambda parts: parts.transfers == "vllm" and "chunks" in parts.layers,
        "prefill and decode engines of models with chunks of local attention are not simulated",
        "disaggregation",
        lambda _: "chunks that vLLM gives back",
        "set allocator.disable_hybrid_kv_cache_manager = true",
    ),
    RefusedPair(
        TRANSFERS,
        "a hierarchical cache (SGLang) of decode replicas",
        lambda parts: parts.decodes and parts.hicache,
        "host memory of decode replicas, apart from that of retracted requests, is not simulated",
        HOST,
        lambda _: "true",
        "set it in [disaggregation.prefill.allocator] alone",
    ),
    RefusedPair(
        TRANSFERS,
        "a storage after SGLang's hierarchical cache",
        lambda parts: parts.transfers != "" and parts.storage,
        "lookups of prefill replicas in a storage are not simulated",
        "allocator.hicache_storage_backend",
        _nothing,
        "leave it out; host memory alone is simulated there",
    ),
    RefusedPair(
        HICACHE,
        "schedulers other than `sglang`",
        lambda parts: parts.hicache and parts.sglang is False,
        "only SGLang's scheduler moves KV to host memory and back in this way",
        HOST,
        lambda _: "true",
        '[scheduler] kind = "sglang", or leave enable_hierarchical_cache out',
    ),
    # --- images and adapters
    RefusedPair(
        SPECIAL,
        TRANSFERS,
        lambda parts: parts.special != "" and parts.transfers != "",
        _not_with,
        "disaggregation",
        _asker,
        "leave the table out",
    ),
    RefusedPair(
        SPECIAL,
        "tiers other than `vllm-offloading` alone, and tiers over stages",
        lambda parts: (
            parts.special != ""
            and parts.connector
            and (parts.stages > 1 or SPECIAL not in parts.serves)
        ),
        _not_with,
        "tier",
        _asker,
        'kind = "vllm-offloading" and nothing behind it, or leave the tiers out',
    ),
    RefusedPair(
        SPECIAL,
        DRAFTS,
        lambda parts: parts.special != "" and parts.drafts,
        _not_with,
        "speculative_config",
        _asker,
        "leave the table out",
    ),
    RefusedPair(
        SPECIAL,
        "schedulers other than vLLM 0.33's",
        lambda parts: parts.special != "" and SPECIAL not in parts.schedules,
        _not_with,
        "scheduler",
        _asker,
        'kind = "continuous" as vllm-0.33',
    ),
    # --- GPUs that share a context
    RefusedPair(
        CONTEXT,
        "allocators other than `paged`",
        lambda parts: parts.context > 1 and parts.allocator != "paged",
        CONTEXT_IN_BLOCKS,
        "model.decode_context_parallel_size",
        lambda parts: parts.context,
        "leave it out, or take paged alone",
        limit=lambda parts: f"1 under {parts.allocator}",
    ),
    RefusedPair(
        CONTEXT,
        DRAFTS,
        lambda parts: parts.context > 1 and parts.drafts,
        CONTEXT_IN_BLOCKS,
        "model.decode_context_parallel_size",
        lambda parts: parts.context,
        "leave it out, or take paged alone",
        limit="1 with a drafter",
    ),
    # --- fleets
    RefusedPair(
        LOCKSTEP,
        "tiers, a hierarchical cache, or two steps in flight",
        lambda parts: parts.lockstep and (parts.connector or parts.hicache or parts.depth > 1),
        _in_common,
        "fleet.router.lockstep",
        _is_set,
        NO_LOCKSTEP,
    ),
    RefusedPair(
        LOCKSTEP,
        CHANGES,
        lambda parts: parts.lockstep and parts.changes,
        "ranks that step together do not start or die alone",
        "fleet.router.lockstep",
        _is_set,
        "leave it out, or the autoscaler and the failures",
    ),
    RefusedPair(
        LOCKSTEP,
        TRANSFERS,
        lambda parts: parts.lockstep and parts.transfers != "",
        "ranks that step together are single replicas",
        "fleet.router.lockstep",
        _is_set,
        "leave it or [disaggregation] out",
    ),
    RefusedPair(
        CELLS,
        CHANGES,
        lambda parts: parts.cells > 1 and parts.changes,
        "replicas of a fleet of several cells do not start or die",
        "fleet.cells",
        _cells,
        "leave fleet.cells out, or the autoscaler and the failures",
    ),
    RefusedPair(
        CELLS,
        "`workload.max_concurrency`",
        lambda parts: parts.cells > 1 and parts.clients,
        "clients with a limit of requests in flight wait for replicas of all cells",
        "fleet.cells",
        _cells,
        "leave fleet.cells or workload.max_concurrency out",
    ),
)
