"""Values of the keys of SGLang's hierarchical cache (HiCache, 0.5.23)."""

from typing import Literal

from pydantic import Field

from kvsim.plumbing.options import Options

# When KV is copied to host memory: computed, hit by a second request, or evicted.
WritePolicy = Literal["write_through", "write_through_selective", "write_back"]
# A request could be admitted while its storage lookup is in flight. "best_effort": it starts
# without, "wait_complete": others pass it, "timeout": others pass it for a time.
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
    """Keys of hicache_storage_backend_extra_config. prefetch_threshold: fewest tokens that storage
    must have for a request; with fewer nothing is read.

    prefetch_timeout_base, prefetch_timeout_per_ki_token: seconds for which a request is skipped
    under the policy "timeout", and seconds more for each 1,024 tokens requested.
    retry_poll_interval: scheduling passes after which a lookup that found nothing is retried while
    the request waits; retry_max_attempts: most retries.
    """

    prefetch_threshold: int = Field(256, ge=0)
    prefetch_timeout_base: float = Field(1.0, ge=0, le=1e6)
    prefetch_timeout_per_ki_token: float = Field(0.25, ge=0, le=1e6)
    retry_poll_interval: int = Field(8, ge=1)
    retry_max_attempts: int = Field(8, ge=0)
