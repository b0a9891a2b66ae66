"""What of the pool differs by the version of vLLM: a frozen constant for each stretch of them.

Read off the wheels of vLLM on PyPI (config/cache.py, envs.py, engine/arg_utils.py,
v1/worker/gpu_worker.py, v1/sample/ops/topk_topp_sampler.py, v1/core/kv_cache_utils.py and the V0
worker), 0.10.1.1 to 0.33.0; V0 off its logs. The bytes a logit are those of the tensors alive at
the sampler's peak in a profiling run, and the memory outside torch is fitted (`estimate/`).
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB

# Which models the second model runner serves ("Model Runner V2"): its sampler's first pass copies
# no logits, and before 0.29 it estimates no CUDA graphs.
SecondRunner = Literal["none", "qwen3", "listed", "dense", "all"]
LISTED_KINDS = ("qwen3", "deepseek_v2", "qwen2_moe", "granitemoe", "llama", "mistral")
LISTED_SPARSE_KINDS = ("deepseek_v2", "qwen2_moe", "granitemoe")


@dataclass(frozen=True, slots=True)
class EngineVersion:
    """How the versions from `since` on size their pool.

    default_utilization: of gpu_memory_utilization. charges_cuda_graphs: an estimate of them is
    taken off the pool. profiles_whole_length: the profiling run prefills max_model_len tokens (V0;
    models longer than 32,768 tokens were chunked there too). sampler_bytes_per_logit: alive at the
    sampler's peak. sampler_scratch_rows: rows of 4-byte scratch as wide as the vocabulary, one a
    multiprocessor. keeps_moe_workspace: the buffers of fused experts outlive the forward pass.
    runner: whom the second model runner serves; runner_bytes_per_logit: at its sampler's peak;
    runner_estimates_graphs: it estimates CUDA graphs. non_torch_gib, non_torch_several_gib: outside
    torch's allocator on one GPU, on one of two; non_torch_more_gib: for each further one.
    tokens_by_concurrency: the log's tokens are max_concurrency * max_model_len, else
    blocks // groups * block_size. batches_in_flight: counted
    for a sliding window. caches_prefixes: by default, caches_hybrid_prefixes: with recurrent layers
    too. schedules_ahead: asynchronous scheduling by default (github.com/vllm-project/vllm/
    pull/27614). heeds_kv_cache_dtype: of a quantised checkpoint. packs_by_place: caches of
    different sizes, a place for each. frees_chunks: of local attention (VLLM_ALLOW_CHUNKED_LOCAL_
    ATTN_WITH_HYBRID_KV_CACHE). exports_states: prefill kernels may write recurrent states out
    within a chunk.
    large_batch_bytes: devices of so much memory take 16,384 tokens a step by default; small_tier:
    devices of 70 GiB that have the defaults of smaller ones.
    """

    name: str
    since: tuple[int, int]
    default_utilization: float = 0.9
    charges_cuda_graphs: bool = False
    profiles_whole_length: bool = False
    sampler_bytes_per_logit: float = 38.0
    sampler_scratch_rows: int = 0
    keeps_moe_workspace: bool = False
    runner: SecondRunner = "none"
    runner_bytes_per_logit: float = 2.0
    runner_estimates_graphs: bool = False
    non_torch_gib: float = 0.13
    non_torch_several_gib: float = 0.55
    non_torch_more_gib: float = 0.0
    tokens_by_concurrency: bool = False
    large_batch_bytes: int | None = None
    small_tier: tuple[str, ...] = ("a100", "gb10")
    batches_in_flight: int = 1
    caches_prefixes: bool = True
    caches_hybrid_prefixes: bool = False
    schedules_ahead: bool = False
    heeds_kv_cache_dtype: bool = False
    packs_by_place: bool = True
    frees_chunks: bool = False
    exports_states: bool = False

    def on_second_runner(self, kind: str, sparse: bool, quantized: bool) -> bool:
        """Whether a model of this model_type, with experts or not, runs on the second runner."""
        if self.runner == "qwen3":
            return kind == "qwen3" and not sparse and not quantized
        if self.runner == "listed":
            return kind in LISTED_KINDS
        if self.runner == "dense":
            return not sparse or kind in LISTED_SPARSE_KINDS
        return self.runner == "all"

    def default_limits(self, device_bytes: int, device_name: str) -> tuple[int, int]:
        """(max_num_seqs, max_num_batched_tokens) of `vllm serve` on such a device."""
        if self.profiles_whole_length:
            return 256, 2048
        if self.large_batch_bytes is not None and device_bytes >= self.large_batch_bytes:
            return 1024, 16_384
        small = any(name in device_name for name in self.small_tier)
        if device_bytes >= 70 * GIB and not small:
            return 1024, 8192
        return 256, 2048


V0 = EngineVersion("V0", (0, 0), profiles_whole_length=True, caches_prefixes=False)
# FlashInfer samples where it is installed, as in the published images; from 0.12 on a sort does.
EARLY_V1 = EngineVersion("0.8", (0, 8), sampler_bytes_per_logit=10.0, small_tier=())
V1 = EngineVersion("0.9", (0, 9), sampler_bytes_per_logit=10.0)
SORTING = EngineVersion("0.12", (0, 12))
WORKSPACE = replace(SORTING, name="0.13", since=(0, 13), keeps_moe_workspace=True)
AHEAD = replace(
    WORKSPACE,
    name="0.14",
    since=(0, 14),
    schedules_ahead=True,
    heeds_kv_cache_dtype=True,
    frees_chunks=True,
)
TRITON = replace(
    AHEAD,
    name="0.17",
    since=(0, 17),
    sampler_bytes_per_logit=14.0,
    sampler_scratch_rows=132,
)
LARGER = replace(
    TRITON,
    name="0.18",
    since=(0, 18),
    non_torch_gib=0.25,
    non_torch_several_gib=2.07,
    non_torch_more_gib=0.03,
)
GRAPHS = replace(
    LARGER,
    name="0.20",
    since=(0, 20),
    default_utilization=0.92,
    charges_cuda_graphs=True,
    non_torch_several_gib=0.7,
    non_torch_more_gib=0.0,
)
CONCURRENCY = replace(GRAPHS, name="0.21", since=(0, 21), tokens_by_concurrency=True)
QWEN3 = replace(CONCURRENCY, name="0.22", since=(0, 22), runner="qwen3")
LISTED = replace(QWEN3, name="0.24", since=(0, 24), runner="listed")
DENSE = replace(QWEN3, name="0.25", since=(0, 25), runner="dense")
IN_FLIGHT = replace(DENSE, name="0.27", since=(0, 27), batches_in_flight=2, packs_by_place=False)
LARGE_BATCH = replace(
    IN_FLIGHT,
    name="0.28",
    since=(0, 28),
    large_batch_bytes=160 * GIB,
    caches_hybrid_prefixes=True,
)
ALL = replace(LARGE_BATCH, name="0.29", since=(0, 29), runner="all", runner_estimates_graphs=True)
# The sampler's second pass, with every parameter set, is profiled as well.
WARMED = replace(ALL, name="0.33", since=(0, 33), runner_bytes_per_logit=14.0, exports_states=True)
ENGINE_VERSIONS = (
    *(V0, EARLY_V1, V1, SORTING, WORKSPACE, AHEAD, TRITON, LARGER, GRAPHS),
    *(CONCURRENCY, QWEN3, LISTED, DENSE, IN_FLIGHT, LARGE_BATCH, ALL, WARMED),
)
DEFAULT_VERSION = "0.33"
_NUMBER = re.compile(r"v?(\d+)\.(\d+)(?:[.\w+-]*)?")


def engine_version(name: str, where: str = "memory.engine_version") -> EngineVersion:
    """The constants for a version of vLLM such as "0.19.0" or "0.22.1rc1" ("V0": before 0.8)."""
    if name.strip().upper() == "V0":
        return V0
    match = _NUMBER.fullmatch(name.strip())
    if match is None:
        raise InputError(
            "not a version of vLLM", where=where, value=repr(name), limit='such as "0.33" or "V0"'
        )
    wanted = (int(match[1]), int(match[2]))
    return next(version for version in reversed(ENGINE_VERSIONS) if version.since <= wanted)
