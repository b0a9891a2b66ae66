"""The flags of an SGLang server that its pool depends on."""

from pydantic import Field, field_validator

from kvsim.capacity.sglang.versions import NEWEST, SglangRules, sglang_version
from kvsim.memory.radix_hybrid.strategy import (
    STATES_RATIO,
    StrategyFlag,
    resolved,
    states_a_request,
)
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options

SGLANG_VERSION = NEWEST.name


class SglangSettings(Options):
    """Flags by SGLang's names, with its defaults.

    mem_fraction_static: share of what is free before the weights that they and the pools may take;
        not given: by the device. chunked_prefill_size: -1 for whole prompts; not given: by the
        device. max_total_tokens: most tokens of the pool.
    swa_full_tokens_ratio: tokens of the windows' pool for each of the full one's.
    mamba_full_memory_ratio: bytes of recurrent states for each byte of KV; max_mamba_cache_size:
        states, given. mamba_radix_cache_strategy: how they are cached.
    engine_version: no flag: the release to follow.
    weights_gib: no flag: what the log says that loading took of one GPU; not given: estimated.
    """

    mem_fraction_static: float | None = Field(None, gt=0, lt=1)
    page_size: int = Field(1, ge=1, le=1 << 20)
    max_total_tokens: int | None = Field(None, ge=1)
    max_running_requests: int | None = Field(None, ge=1)
    chunked_prefill_size: int | None = Field(None, ge=-1)
    max_prefill_tokens: int = Field(16384, ge=1)
    disable_radix_cache: bool = False
    disable_overlap_schedule: bool = False
    swa_full_tokens_ratio: float = Field(0.8, gt=0, le=1)
    mamba_full_memory_ratio: float = Field(STATES_RATIO, gt=0)
    max_mamba_cache_size: int | None = Field(None, ge=1)
    mamba_radix_cache_strategy: StrategyFlag = "auto"
    weights_gib: float | None = Field(None, gt=0)
    engine_version: str = SGLANG_VERSION

    @property
    def rules(self) -> SglangRules:
        """The rules of the version."""
        return sglang_version(self.engine_version)

    def states_a_request(self, *, alone: bool) -> int:
        """Recurrent states that each running request may need. alone: all layers are recurrent."""
        overlaps = not self.disable_overlap_schedule
        flag = self.mamba_radix_cache_strategy
        if flag == "auto" and self.rules.auto_strategy is not None:
            flag = self.rules.auto_strategy
        strategy = resolved(flag, self.page_size, overlaps=overlaps, alone=alone)
        caching = not self.disable_radix_cache
        return states_a_request(strategy, overlaps=overlaps, caching=caching)

    @field_validator("engine_version")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            sglang_version(name)
        except InputError as error:
            raise ValueError(f"{error.what}: {error.limit}") from None
        return name

    @field_validator("chunked_prefill_size")
    @classmethod
    def _some(cls, size: int | None) -> int | None:
        if size == 0:
            raise ValueError("at least 1, or -1 for whole prompts")
        return size
