"""The keys of SGLang's hierarchical cache (HiCache, 0.5.23), by the names of its flags."""

from typing import Literal, Self

from pydantic import Field, model_validator

from kvsim.memory.options import AllocatorOptions
from kvsim.plumbing.options import Options

WritePolicy = Literal["write_through", "write_through_selective", "write_back"]
PrefetchPolicy = Literal["best_effort", "wait_complete", "timeout"]
THRESHOLDS: dict[WritePolicy, int | None] = {
    "write_through": 1,
    "write_through_selective": 2,
    "write_back": None,
}
DEFAULT_RATIO = 2.0
MOST_GB = 1e9
Speed = Field(None, ge=1e-6, le=1e9)


class HicacheStorageConfig(Options):
    """prefetch_threshold: tokens that a storage must have for a request, or nothing is read.

    prefetch_timeout_base, prefetch_timeout_per_ki_token: seconds for which a request is skipped
    under the policy "timeout", and seconds more for each 1,024 tokens asked for.
    retry_poll_interval: passes after which a lookup in vain is tried again while the request waits;
    retry_max_attempts: how many times.
    """

    prefetch_threshold: int = Field(256, ge=0)
    prefetch_timeout_base: float = Field(1.0, ge=0, le=1e6)
    prefetch_timeout_per_ki_token: float = Field(0.25, ge=0, le=1e6)
    retry_poll_interval: int = Field(8, ge=1)
    retry_max_attempts: int = Field(8, ge=0)


class HicacheOptions(AllocatorOptions):
    """enable_hierarchical_cache: KV that the device evicts stays in host memory, under
        kind = "sglang" of [scheduler].
    hicache_ratio: tokens of host memory for each token of the device's pool; 2 unless given.
        hicache_size: GB (1e9 bytes) of host memory per GPU instead.
    hicache_write_policy: "write_through": KV is copied to host memory when a request has computed
        it. "write_through_selective": when a second request has hit it. "write_back": when the
        device evicts it, and the scheduler waits for the copy.
    hicache_storage_backend: any name adds an L3 storage after host memory, and all KV that reaches
        host memory is written to it. hicache_storage_prefetch_policy: what a request does while its
        storage lookup is in flight and it could be admitted. "best_effort": start without it,
        "wait_complete": let others pass, "timeout": let others pass for a time.
        hicache_storage_backend_extra_config: a table of more.
    hicache_write_gb_per_s, hicache_load_gb_per_s: of copies to host memory and back, a direction
        each; the device's host link unless given. hicache_copy_latency_us: before each copy, of a
        load before each layer.
    storage_read_gb_per_s, storage_write_gb_per_s: of the storage, 5 unless given.
        storage_latency_us: of each call, 100 unless given. hicache_storage_shared: all replicas of
        a fleet find what one has written, each at these speeds. These seven are kvsim's own.
    """

    enable_hierarchical_cache: bool = False
    hicache_ratio: float | None = Field(None, gt=0, le=1e6)
    hicache_size: float | None = Field(None, gt=0, le=MOST_GB)
    hicache_write_policy: WritePolicy = "write_through"
    hicache_storage_backend: str | None = None
    hicache_storage_prefetch_policy: PrefetchPolicy = "timeout"
    hicache_storage_backend_extra_config: HicacheStorageConfig = HicacheStorageConfig()
    hicache_storage_shared: bool = False
    hicache_write_gb_per_s: float | None = Speed
    hicache_load_gb_per_s: float | None = Speed
    hicache_copy_latency_us: float = Field(10.0, ge=0, le=1e9)
    storage_read_gb_per_s: float | None = Speed
    storage_write_gb_per_s: float | None = Speed
    storage_latency_us: float | None = Field(None, ge=0, le=1e9)

    @model_validator(mode="after")
    def _keys_that_do_something(self) -> Self:
        fields = HicacheOptions.model_fields.keys() - AllocatorOptions.model_fields.keys()
        changed = self.changed(sorted(fields))
        if changed and not self.enable_hierarchical_cache:
            raise ValueError(f"{changed[0]} changes nothing without enable_hierarchical_cache")
        if self.hicache_ratio is not None and self.hicache_size is not None:
            raise ValueError("give at most one of hicache_ratio and hicache_size")
        storage = [key for key in changed if "storage" in key]
        if storage and self.hicache_storage_backend is None:
            raise ValueError(f"{storage[0]} changes nothing without hicache_storage_backend")
        if self.hicache_storage_prefetch_policy != "timeout":
            self._check_no_time_is_set()
        return self

    def _check_no_time_is_set(self) -> None:
        extra = self.hicache_storage_backend_extra_config
        for key in extra.changed(type(extra).model_fields):
            if "timeout" in key:
                raise ValueError(
                    f"{key} changes nothing unless hicache_storage_prefetch_policy is timeout"
                )

    def host_tokens(self, pool_tokens: int, token_bytes: int, page_size: int) -> int:
        """Tokens of the host pool, whole pages (mem_cache/pool_host/base.py)."""
        if self.hicache_size is not None:
            tokens = int(self.hicache_size * 1e9 // token_bytes)
        else:
            ratio = DEFAULT_RATIO if self.hicache_ratio is None else self.hicache_ratio
            tokens = int(pool_tokens * ratio)
        return (tokens // page_size + 1) * page_size

    @property
    def page_tokens(self) -> int:
        """Tokens of a page."""
        raise NotImplementedError(type(self).__name__)  # who has pages says how large they are

    @property
    def shares_storage(self) -> bool:
        return self.hicache_storage_shared

    @property
    def write_threshold(self) -> int | None:
        """Number of insertions after which a node is written; None: it is written when it is
        evicted.
        """
        return THRESHOLDS[self.hicache_write_policy]
