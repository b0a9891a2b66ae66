"""Differences between versions of vLLM: one field each, in three parts.

Modules for blocks, scheduling and sizing read the fields and never ask for a version's name. The
constants are in `versions`.
"""

from dataclasses import dataclass
from typing import Final, Literal

from kvsim.plumbing.units import GIB

# A block has a place for each page size in every repeat of the layers ("repeats"), one for each
# page size in the group with most of it ("sizes"), or the bytes of the widest group ("widest").
Packing = Literal["repeats", "sizes", "widest"]
# Which models the second model runner serves ("Model Runner V2"): its sampler's first pass copies
# no logits, and before 0.29 it estimates no CUDA graphs.
SecondRunner = Literal["none", "qwen3", "listed", "dense", "all"]
FusedAllReduce = Literal["none", "granules", "exact"]
LISTED_KINDS = ("qwen3", "deepseek_v2", "qwen2_moe", "granitemoe", "llama", "mistral")
LISTED_SPARSE_KINDS = ("deepseek_v2", "qwen2_moe", "granitemoe")
# Number of the first block that a request may have: block 0 is the null block (core/block_pool.py).
FIRST_BLOCK: Final = 1
# Positions in a video may exceed the tokens that it takes (layers/rotary_embedding/mrope.py).
MROPE_FACTOR = 4


@dataclass(frozen=True, slots=True)
class BlockRules:
    """A version's rules for blocks and the prefix cache (v1/core of vLLM).

    name: the version, for messages.
    null_blocks: blocks of the pool that no request can have.
    default_watermark: share of the pool that an admission leaves free, unless configured.
    watermark_when_idle: the watermark holds in an idle engine too, so that a request which could
        never leave it free is refused.
    knows_watermark: the version has the option watermark.
    spare_block: each decoding sequence needs one free block before each token.
    blank_first: freed blocks without a hash go to the front of the free queue; else all freed
        blocks go to the back.
    forks: the samples of a request share its prompt by copy on write, unless configured.
    several_tables: sliding-window and recurrent layers have block tables of their own; else every
        layer keeps every token.
    commonest_sizes_groups: a group has as many layers as the commonest kind of layer, if that is
        less than 1.5 times the rarest kind. Else it has as many as the rarest.
    unequal_blocks: blocks of layers in which a token takes fewer bytes hold more tokens; else an
        engine with such layers does not start.
    any_kinds: prefixes are matched over any kinds of layers. Else an engine that matches prefixes
        starts only with full attention and at most one other kind.
    knows_retention: the version has the option prefix_cache_retention_interval.
    default_retention: that interval in tokens, unless configured; None: every full block of a
        window, and the state at each block's end, is kept.
    keeps_states: recurrent states are cached at the ends of blocks. caches_states: by default.
    plants_junctions: windows and states are cached where two prompts were seen to differ.
    counts_last_token: the last cached state of a prompt is at least one token before the prompt's
        end, where the same prompt can hit it. Else it is at the end of the prompt's last full
        block.
    cuts_at_blocks: chunks end at ends of blocks wherever they begin. Else a chunk is a whole number
        of blocks long, up to the last cached state.
    stops_at_hits: a chunk ends at the last unit of its prompt only where hits may end inside
        blocks. Else it does wherever a unit is smaller than the alignment of hits.
    waits_for_return: a window keeps the blocks that steps in flight still read; else scheduled
        tokens count as computed.
    retires_behind_gaps: unused states are freed at any position. Else states after positions
        without a state stay, except the state of the previous allocation.
    matches_inside: hits of a model with states can end inside blocks (prefix_match_unit).
    parts_inside: hits end with blocks where blocks of windows are not units. Else such a model with
        longer blocks of states fails at its first lookup.
    trims_every_kind: the hits of every kind of full attention are cut to the prefix common to all
        groups; else only those of the first kind.
    writes_inside: a prefill kernel may write states out within a chunk.
    names_returned: blocks that accepted drafts fill get their hashes when the step returns; else,
        where steps do not overlap, when the sequence is scheduled next.
    packing: how caches in blocks of their own sizes share a block (see `packed`).
    counts_drops: where a drafter's hits lose their last unit, the lookup goes one unit further and
        a prompt's tail is cached one unit lower. Else only chunks end one block lower.
    """

    name: str
    null_blocks: int = FIRST_BLOCK
    default_watermark: float = 0.0
    watermark_when_idle: bool = False
    knows_watermark: bool = True
    spare_block: bool = False
    blank_first: bool = True
    forks: bool = False
    several_tables: bool = True
    commonest_sizes_groups: bool = True
    unequal_blocks: bool = True
    any_kinds: bool = True
    knows_retention: bool = True
    default_retention: int | None = 0
    keeps_states: bool = True
    caches_states: bool = True
    plants_junctions: bool = True
    counts_last_token: bool = True
    cuts_at_blocks: bool = True
    stops_at_hits: bool = True
    waits_for_return: bool = True
    retires_behind_gaps: bool = True
    matches_inside: bool = True
    parts_inside: bool = True
    trims_every_kind: bool = True
    writes_inside: bool = True
    names_returned: bool = True
    counts_drops: bool = True
    packing: Packing = "widest"


@dataclass(frozen=True, slots=True)
class SchedulingRules:
    """A version's rules for the steps of v1/core/sched/scheduler.py.

    reserves_full_isl: the version has the option scheduler_reserve_full_isl.
    lone_request_ignores_threshold: long_prefill_token_threshold does not bind the only request of
        an engine.
    continues_after_self_preemption: under policy = "priority", a step schedules other requests
        after one has preempted itself.
    preemption_skips_next: under policy = "priority", the preemption of a request not yet scheduled
        in the step leaves the next request out of the step.
    tries_behind_too_long: without chunked prefill, a step tries the requests after one with a
        prompt that exceeds the rest of the token budget.
    speculates: the scheduling of drafted tokens is simulated.
    looks_ahead: a block's hash can cover the tokens after the block, and the tokens that a drafter
        reads count against the token budget.
    pads_in_idle_engine: an admission that hits all but one token is padded with drafts in an idle
        engine too. It starts without drafts where they do not fit below max_model_len.
    """

    reserves_full_isl: bool = True
    lone_request_ignores_threshold: bool = True
    continues_after_self_preemption: bool = True
    preemption_skips_next: bool = False
    tries_behind_too_long: bool = False
    speculates: bool = True
    looks_ahead: bool = True
    pads_in_idle_engine: bool = True


@dataclass(frozen=True, slots=True)
class SizingRules:
    """A version's rules for the size of the KV pool, and its defaults that the size depends on.

    default_utilization: gpu_memory_utilization, unless configured.
    charges_cuda_graphs: an estimate of the CUDA graphs is taken off the pool.
    profiles_whole_length: the profiling run prefills max_model_len tokens (V0; models longer than
        32,768 tokens were chunked there too).
    sampler_bytes_per_logit: bytes alive at the peak of the version's own sampler.
    sampler_scratch_rows: its rows of 4-byte scratch as wide as the vocabulary, one a
        multiprocessor.
    flashinfer_samples: FlashInfer samples in its place unless configured; None: it never does.
    flashinfer_if_installed: that depends on what is installed, which no option says.
    flashinfer_bytes_per_logit: bytes alive at its peak.
    benchmarks_compiled: the compiler's first run measures its kernels on copies of what they read,
        the embedding above all (config/compilation.py, `benchmark_combo_kernel`).
    reserves_video_text: the states of a video are kept with room for the text of its time stamps.
    keeps_moe_workspace: the buffers of fused experts outlive the forward pass.
    runner: the models that the second model runner serves.
    runner_bytes_per_logit: bytes alive at the peak of that runner's sampler.
    runner_estimates_graphs: that runner estimates CUDA graphs.
    non_torch_gib, non_torch_several_gib, non_torch_pcie_gib: GiB outside torch's allocator. They
        are on one GPU, on each of several joined by an NVLink older than the fourth, and on each
        without it.
    finds_nccl: NCCL's buffers are in use at the engine's first look, and NCCL connects an algorithm
        when it is first used (v1/worker/gpu_worker.py `init_device`, env_override.py). Else they
        are charged, all connected.
    fused_all_reduce: all-reduces are fused with the following norm, in a workspace of FlashInfer.
        Its buffers are whole granules of a multicast, or as large as needed.
    state_a_sequence: an engine with CUDA graphs starts only with a block of states for each of
        max_num_seqs (config/compilation.py `resolve_cudagraph_mode_and_sizes`).
    tokens_by_concurrency: the log's KV cache tokens are max_concurrency * max_model_len; else
        blocks // groups * block_size.
    large_batch_bytes: devices of this memory or more take 16,384 tokens a step by default.
    small_tier: devices of 70 GiB or more that have the defaults of smaller ones.
    batches_in_flight: batches counted for a sliding window.
    caches_prefixes: prefix caching by default; recurrent layers: see BlockRules.
    schedules_ahead: asynchronous scheduling by default (github.com/vllm-project/vllm/pull/27614).
    heeds_kv_cache_dtype: the KV dtype that a quantised checkpoint names is used.
    frees_chunks: local attention frees the blocks before the current chunk
        (VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE).
    exports_states: prefill kernels may write recurrent states out within a chunk.
    short_mrope_kinds: models with mrope positions that never exceed the tokens of a sequence, so
        that their tables of cosines are no longer (model_executor/models/qwen3_vl.py).
    """

    default_utilization: float = 0.9
    charges_cuda_graphs: bool = False
    profiles_whole_length: bool = False
    sampler_bytes_per_logit: float = 38.0
    sampler_scratch_rows: int = 0
    flashinfer_samples: bool | None = False
    flashinfer_if_installed: bool = False
    flashinfer_bytes_per_logit: float = 14.0
    benchmarks_compiled: bool = False
    reserves_video_text: bool = True
    keeps_moe_workspace: bool = False
    runner: SecondRunner = "none"
    runner_bytes_per_logit: float = 2.0
    runner_estimates_graphs: bool = False
    non_torch_gib: float = 0.13
    non_torch_several_gib: float = 0.55
    non_torch_pcie_gib: float = 0.13
    finds_nccl: bool = False
    fused_all_reduce: FusedAllReduce = "none"
    state_a_sequence: bool = False
    tokens_by_concurrency: bool = False
    large_batch_bytes: int | None = None
    small_tier: tuple[str, ...] = ("a100", "gb10")
    batches_in_flight: int = 1
    caches_prefixes: bool = True
    schedules_ahead: bool = False
    heeds_kv_cache_dtype: bool = False
    frees_chunks: bool = False
    exports_states: bool = False
    short_mrope_kinds: tuple[str, ...] = ()

    def rotary_factor(self, kind: str, mrope: bool) -> int:
        """Rows of the tables of cosines for each position of a model of this model_type."""
        return MROPE_FACTOR if mrope and kind not in self.short_mrope_kinds else 1

    def on_second_runner(
        self, kind: str, *, sparse: bool, quantized: bool, recurrent: bool
    ) -> bool:
        """Whether the second runner serves a model of this model_type. sparse: it has experts,
        recurrent: layers with states (0.25.1 to 0.28, config/vllm.py `use_v2_model_runner`).
        """
        if self.runner == "qwen3":
            return kind == "qwen3" and not sparse and not quantized
        if self.runner == "listed":
            return kind in LISTED_KINDS
        if self.runner == "dense":
            return not recurrent and (not sparse or kind in LISTED_SPARSE_KINDS)
        return self.runner == "all"

    def default_limits(self, device_bytes: int, device_name: str) -> tuple[int, int]:
        """(max_num_seqs, max_num_batched_tokens) of `vllm serve` on a device of this memory."""
        if self.profiles_whole_length:
            return 256, 2048
        if self.large_batch_bytes is not None and device_bytes >= self.large_batch_bytes:
            return 1024, 16_384
        small = any(name in device_name for name in self.small_tier)
        if device_bytes >= 70 * GIB and not small:
            return 1024, 8192
        return 256, 2048
