"""Causes of a slow server: one module each, registered here by one line each."""

from kvsim.plumbing.registry import Registry
from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion

__all__ = ["CAUSES", "Cause", "Cure", "Suspicion"]

CAUSES: Registry[Cause] = Registry(
    "cause",
    {
        "block-over-prefix": "kvsim.whatif.doctor.causes.block_over_prefix:BlockOverPrefix",
        "no-prefix-cache": "kvsim.whatif.doctor.causes.no_prefix_cache:NoPrefixCache",
        "retention": "kvsim.whatif.doctor.causes.retention:SparseRetention",
        "idle-cache": "kvsim.whatif.doctor.causes.idle_cache:IdleCache",
        "lost-block": "kvsim.whatif.doctor.causes.lost_block:LostBlock",
        "idle-drafts": "kvsim.whatif.doctor.causes.idle_drafts:IdleDrafts",
        "chunked-admission": "kvsim.whatif.doctor.causes.chunked_admission:ChunkedAdmission",
        "too-many-sequences": "kvsim.whatif.doctor.causes.too_many_sequences:TooManySequences",
        "too-few-sequences": "kvsim.whatif.doctor.causes.too_few_sequences:TooFewSequences",
        "too-long-requests": "kvsim.whatif.doctor.causes.too_long_requests:TooLongRequests",
        "few-adapters": "kvsim.whatif.doctor.causes.few_adapters:FewAdapters",
        "few-slots": "kvsim.whatif.doctor.causes.few_slots:FewSlots",
        "full-windows": "kvsim.whatif.doctor.causes.full_windows:FullWindows",
        "slot-similarity": "kvsim.whatif.doctor.causes.slot_similarity:SlotSimilarity",
        "padding": "kvsim.whatif.doctor.causes.padding:Padding",
        "fragmentation": "kvsim.whatif.doctor.causes.fragmentation:Fragmentation",
        "cuda-graphs": "kvsim.whatif.doctor.causes.cuda_graphs:CudaGraphs",
        "unused-memory": "kvsim.whatif.doctor.causes.unused_memory:UnusedMemory",
        "evicted-prefixes": "kvsim.whatif.doctor.causes.evicted_prefixes:EvictedPrefixes",
        "slow-link": "kvsim.whatif.doctor.causes.slow_link:SlowLink",
        "small-tier": "kvsim.whatif.doctor.causes.small_tier:SmallTier",
        "small-prompt-cache": "kvsim.whatif.doctor.causes.small_prompt_cache:SmallPromptCache",
        "small-pool": "kvsim.whatif.doctor.causes.small_pool:SmallPool",
    },
)
