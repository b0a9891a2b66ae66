"""All refused pairs of parts, in the order in which they are checked."""

from kvsim.support.conditions import (
    CONTEXT_IN_BLOCKS,
    HOST,
    NO_LOCKSTEP,
    asker_of,
    is_set,
    layers_beyond,
    lockstep_with,
    not_with,
    nothing,
    num_cells,
    set_option,
)
from kvsim.support.engine_rows import ENGINE_ROWS
from kvsim.support.pair import RefusedPair
from kvsim.support.parts import (
    CELLS,
    CHANGES,
    CONTEXT,
    HICACHE,
    INSIDE_BLOCKS,
    LOCKSTEP,
    SHARED,
    SPECIAL,
    TRANSFERS,
)

ROWS: tuple[RefusedPair, ...] = (
    *ENGINE_ROWS,
    # --- tiers that replicas share
    RefusedPair(
        SHARED,
        TRANSFERS,
        lambda parts: parts.shared != "" and parts.transfers != "",
        "prefill replicas share no tier",
        lambda parts: parts.shared,
        is_set,
        "leave it or disaggregation out",
    ),
    RefusedPair(
        SHARED,
        "one replica",
        lambda parts: parts.shared != "" and parts.alone,
        "one replica shares its tiers with no other",
        lambda parts: parts.shared,
        is_set,
        "leave it out, or give the scenario fleet.replicas",
    ),
    RefusedPair(
        SHARED,
        CELLS,
        lambda parts: parts.shared != "" and parts.cells > 1,
        "replicas of different cells share no tier",
        "fleet.cells",
        num_cells,
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
        "`kvsim export --to vllm-serve`",
        lambda parts: parts.transfers != "" and parts.export == "vllm-serve",
        "prefill and decode replicas are started by commands of their own",
        "disaggregation",
        nothing,
        "leave the table out",
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
        "DeepSeek-V4 under vLLM",
        lambda parts: parts.transfers == "vllm" and "own blocks" in parts.layers,
        "prefill and decode engines of models that have caches in blocks of their own are not "
        "simulated",
        "disaggregation",
        layers_beyond,
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
        "a hierarchical cache (SGLang) of decode replicas without a radix cache",
        lambda parts: parts.decodes and parts.hicache and not parts.caches,
        "a hierarchical cache of decode replicas extends their radix cache",
        HOST,
        lambda _: "true",
        "set disaggregation.decode_radix_cache = true, or set it in "
        "[disaggregation.prefill.allocator] alone",
    ),
    RefusedPair(
        TRANSFERS,
        "a storage after SGLang's hierarchical cache",
        lambda parts: parts.transfers != "" and parts.storage,
        "lookups of prefill and decode replicas in a storage are not simulated",
        "allocator.hicache_storage_backend",
        nothing,
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
    RefusedPair(
        HICACHE,
        "windows, states, or `disable_radix_cache`",
        lambda parts: (
            parts.hicache and (not parts.caches or bool(parts.layers & {"windows", "states"}))
        ),
        "a hierarchical cache extends the radix cache of full attention",
        HOST,
        lambda _: "true, without that cache",
        "leave it out",
    ),
    RefusedPair(
        "radix",
        "windows with recurrent states",
        lambda parts: parts.allocator == "radix" and parts.layers >= {"windows", "states"},
        "the radix tree has one pool in addition to the pages",
        "allocator.kind",
        lambda _: "radix, with windows and recurrent states",
        "use paged",
    ),
    RefusedPair(
        "`prefix_match_unit` below the blocks of states",
        "windows in other blocks, in the versions that fail with them",
        lambda parts: parts.parted and parts.rules != "",
        lambda parts: (
            f"{parts.rules} matches prefixes inside blocks of states, and fails if windows have"
            " other blocks"
        ),
        "allocator.prefix_match_unit",
        lambda parts: set_option(parts, INSIDE_BLOCKS)[1],
        "leave it out, or take another version",
        by="vLLM, with an error",
    ),
    RefusedPair(
        "`enable_prefix_caching`",
        "full attention in blocks of several sizes, in the versions that write over hits",
        lambda parts: len(parts.full_blocks) > 1 and parts.rules != "",
        lambda parts: (
            f"{parts.rules} takes over more of the second kind of full attention than it has hit,"
            " and writes over it: that is not simulated"
        ),
        "allocator.enable_prefix_caching",
        is_set,
        "set it to false, or take another version",
        limit=lambda parts: (
            f"not with blocks of {' and '.join(map(str, parts.full_blocks))} tokens"
        ),
    ),
    # --- images and adapters
    RefusedPair(
        SPECIAL,
        "tiers but `vllm-offloading` or `vllm-simple-offloading` alone, and tiers over stages",
        lambda parts: (
            parts.special != ""
            and parts.connector
            and (parts.stages > 1 or SPECIAL not in parts.serves)
        ),
        not_with,
        "tier",
        asker_of,
        'kind = "vllm-offloading" and nothing behind it, or leave the tiers out',
    ),
    RefusedPair(
        SPECIAL,
        "schedulers other than vLLM 0.33's",
        lambda parts: parts.special != "" and SPECIAL not in parts.schedules,
        not_with,
        "scheduler",
        asker_of,
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
    # --- fleets
    RefusedPair(
        LOCKSTEP,
        "pipeline stages, or a hierarchical cache (SGLang)",
        lambda parts: parts.lockstep and (parts.stages > 1 or parts.hicache),
        lockstep_with,
        "fleet.router.lockstep",
        is_set,
        "leave it out",
    ),
    RefusedPair(
        LOCKSTEP,
        "tiers other than `vllm-offloading` and `file-system`",
        lambda parts: parts.lockstep and parts.connector and LOCKSTEP not in parts.serves,
        lockstep_with,
        "fleet.router.lockstep",
        is_set,
        'leave it out, or take [[tier]] kind = "vllm-offloading"',
    ),
    RefusedPair(
        "ranks under `sglang-dp`",
        "tiers, or two steps in flight of another scheduler than SGLang's",
        lambda parts: (
            parts.lockstep
            and parts.no_tiers
            and (parts.connector or (parts.depth > 1 and not parts.sglang))
        ),
        lockstep_with,
        "fleet.router.lockstep",
        is_set,
        NO_LOCKSTEP,
    ),
    RefusedPair(
        LOCKSTEP,
        CHANGES,
        lambda parts: parts.lockstep and parts.changes,
        "ranks that step together do not start or die alone",
        "fleet.router.lockstep",
        is_set,
        "leave it out, or the autoscaler and the failures",
    ),
    RefusedPair(
        LOCKSTEP,
        "prefill and decode replicas, but under vLLM in `disaggregation.router`",
        lambda parts: parts.lockstep and parts.transfers in ("apart", "sglang"),
        lambda parts: (
            "ranks that step together are single replicas"
            if parts.transfers == "apart"
            else "ranks that step together are simulated for vLLM's prefill and decode replicas"
        ),
        lambda parts: (
            "fleet.router.lockstep" if parts.transfers == "apart" else "disaggregation.router"
        ),
        is_set,
        "leave it out, or under vLLM set it in disaggregation.router",
    ),
    RefusedPair(
        CELLS,
        CHANGES,
        lambda parts: parts.cells > 1 and parts.changes,
        "replicas of a fleet of several cells do not start or die",
        "fleet.cells",
        num_cells,
        "leave fleet.cells out, or the autoscaler and the failures",
    ),
    RefusedPair(
        CELLS,
        "`workload.max_concurrency`",
        lambda parts: parts.cells > 1 and parts.clients,
        "clients with a limit of requests in flight wait for replicas of all cells",
        "fleet.cells",
        num_cells,
        "leave fleet.cells or workload.max_concurrency out",
    ),
    RefusedPair(
        CELLS,
        "`workload.rounds`",
        lambda parts: parts.cells > 1 and parts.rounds,
        "a turn waits for the conversations of all cells",
        "fleet.cells",
        num_cells,
        "leave fleet.cells or workload.rounds out",
    ),
)
