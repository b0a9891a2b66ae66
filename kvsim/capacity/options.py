"""`[memory]`: the size of the pool, or the memory that the engine uses outside of it."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.vllm.versions import NEWEST, VllmVersion, vllm_version

WAYS = (
    *("gpu_memory_utilization", "kv_cache_bytes", "kv_cache_tokens", "num_gpu_blocks"),
    *("mem_fraction_static", "free_gpu_memory_fraction"),
)
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # vLLM 0.33, config/lora.py
Share = Annotated[float, Field(gt=0, lt=1)]
SGLANG = ("mem_fraction_static", "mamba_full_memory_ratio", "kv_cache_tokens")
RESERVES = ("weights_gib", "activation_gib", "other_gib")
# Upper limits beside a share of memory: TensorRT-LLM's max_gpu_total_bytes and max_tokens, SGLang's
# max_total_tokens.
LIMITS = {
    "mem_fraction_static": ("kv_cache_tokens",),
    "free_gpu_memory_fraction": ("kv_cache_bytes", "kv_cache_tokens"),
}
TRT_LLM = (
    *("free_gpu_memory_fraction", "enforce_eager"),
    *LIMITS["free_gpu_memory_fraction"],
    *RESERVES,
)
# The engines that size a pool otherwise than vLLM, by the key that names the way, with their keys.
OTHER_ENGINES = {
    "mem_fraction_static": ("SGLang", SGLANG),
    "free_gpu_memory_fraction": ("TensorRT-LLM", TRT_LLM),
}


class MemoryOptions(Options):
    """At most one of gpu_memory_utilization, kv_cache_bytes, kv_cache_tokens, num_gpu_blocks,
    mem_fraction_static and free_gpu_memory_fraction.

    gpu_memory_utilization: the default is 0.92, and 0.9 before vLLM 0.20. mem_fraction_static: the
    pool as SGLang 0.5.23 sizes it ("auto": its default); if kv_cache_tokens is given too, it is an
    upper limit, its max_total_tokens. kv_cache_tokens: under vLLM's schedulers it is "GPU KV cache
    size" of vLLM's log. Over SGLang's memory alone it is max_total_num_tokens of SGLang's log, and
    windows and cached states have memory in addition. num_gpu_blocks: under vLLM's schedulers the
    blocks of its log, which each hold one group of layers. Under others a block holds block_size
    tokens in all layers. free_gpu_memory_fraction: the pool as TensorRT-LLM sizes it, by the share
    of what its profiling run leaves free ("auto": 0.9). kv_cache_tokens and kv_cache_bytes are then
    upper limits, its max_tokens and max_gpu_total_bytes. mamba_full_memory_ratio: bytes of
    recurrent states for each byte of KV (SGLang's; default 0.9).

    weights_gib, activation_gib, other_gib: what the log says of one GPU, instead of the estimates.
    They belong to gpu_memory_utilization and free_gpu_memory_fraction. other_gib is all that is
    neither weights nor activations. engine_version: of vLLM, such as "0.19" or "V0". It decides how
    the pool is sized. Not given: the version that the scheduler's semantics name. enforce_eager:
    without CUDA graphs; max_cudagraph_capture_size: tokens of the largest one (default: the
    engine's). enable_prefix_caching: for the engine's own plan of blocks (default: the version's).
    drafter: "mtp", or a model (its name, or the path of its config.json) that drafts
    num_speculative_tokens ahead. max_loras, max_lora_rank: adapters that room is kept for.
    flashinfer_sampler: whether FlashInfer samples top-p and top-k (VLLM_USE_FLASHINFER_SAMPLER).
    Default: true since 0.21, else false. The images of 0.8 to 0.11 have FlashInfer, and true is
    theirs; `pip install vllm` did not bring it. Then vLLM sorts the logits: 28 bytes more for each.
    first_start: without a cache of what vLLM compiles, as in a fresh container. Since 0.12 the
    compiler then holds a copy of the embedding. Later starts have more for KV.
    """

    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    kv_cache_bytes: int | None = Field(default=None, gt=0)
    kv_cache_tokens: int | None = Field(default=None, gt=0)
    num_gpu_blocks: int | None = Field(default=None, gt=0)
    mem_fraction_static: Share | Literal["auto"] | None = None
    free_gpu_memory_fraction: Share | Literal["auto"] | None = None
    mamba_full_memory_ratio: float | None = Field(default=None, gt=0)
    weights_gib: float | None = Field(default=None, ge=0)
    activation_gib: float | None = Field(default=None, ge=0)
    other_gib: float | None = Field(default=None, ge=0)
    engine_version: str = NEWEST.name
    enforce_eager: bool = False
    max_cudagraph_capture_size: int | None = Field(default=None, ge=1)
    enable_prefix_caching: bool | None = None
    drafter: str | None = None
    num_speculative_tokens: int = Field(default=1, ge=1)
    max_loras: int = Field(default=0, ge=0)
    max_lora_rank: int = Field(default=16, ge=1)
    flashinfer_sampler: bool | None = None
    first_start: bool = False

    @field_validator("max_lora_rank")
    @classmethod
    def _a_rank_of_vllm(cls, rank: int) -> int:
        if rank not in LORA_RANKS:
            known = ", ".join(map(str, LORA_RANKS))
            raise ValueError(f"vLLM has no such rank: it is one of {known}")
        return rank

    @field_validator("engine_version")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            vllm_version(name)
        except InputError as error:
            raise ValueError(f"{error.what}; {error.limit}") from None
        return name

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = [way for way in WAYS if getattr(self, way) is not None]
        for share in LIMITS:
            if share in given:
                given = [way for way in given if way not in LIMITS[share]]
        if len(given) > 1:
            raise ValueError(f"give one of {', '.join(WAYS)}, not {' and '.join(given)}")
        idle = [key for key in RESERVES if getattr(self, key) is not None]
        if (
            idle
            and given
            and given[0] not in ("gpu_memory_utilization", "free_gpu_memory_fraction")
        ):
            raise ValueError(f"{given[0]} fixes the pool, so {idle[0]} would change nothing")
        return self

    @model_validator(mode="after")
    def _all_of_use(self) -> Self:
        for key, other in (("num_speculative_tokens", "drafter"), ("max_lora_rank", "max_loras")):
            if self.changed([key]) and not getattr(self, other):
                raise ValueError(f"{key} changes nothing without {other}")
        return self

    @model_validator(mode="after")
    def _engines_apart(self) -> Self:
        if self.mamba_full_memory_ratio is not None and self.mem_fraction_static is None:
            raise ValueError("mamba_full_memory_ratio is SGLang's: give mem_fraction_static too")
        for way, (engine, keys) in OTHER_ENGINES.items():
            if getattr(self, way) is None:
                continue
            for name, field in type(self).model_fields.items():
                if name not in keys and getattr(self, name) != field.default:
                    raise ValueError(f"{name} is vLLM's: {engine}'s pool ({way}) has none")
        return self

    @property
    def of_vllm(self) -> bool:
        """Whether the pool is sized as vLLM sizes it, or given."""
        return all(getattr(self, way) is None for way in OTHER_ENGINES)

    @property
    def version(self) -> VllmVersion:
        """The constants of the engine's version."""
        return vllm_version(self.engine_version)

    @property
    def utilization(self) -> float:
        """gpu_memory_utilization: the option, or the default of the engine's version."""
        return self.gpu_memory_utilization or self.version.sizing.default_utilization
