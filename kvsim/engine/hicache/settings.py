"""Settings of SGLang's L3 storage."""

from typing import NamedTuple

from kvsim.memory.radix.hicache.options import PrefetchPolicy


class StorageSettings(NamedTuple):
    """threshold_tokens: shorter finds are not read. timeout_ps, timeout_ps_per_ki_token: how long
    admission passes over a request under "timeout". retry_passes, most_retries: when a lookup that
    found too little is tried again.
    """

    policy: PrefetchPolicy = "timeout"
    threshold_tokens: int = 256
    timeout_ps: int = 10**12
    timeout_ps_per_ki_token: int = 10**12 // 4
    retry_passes: int = 8
    most_retries: int = 8
