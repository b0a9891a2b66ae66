"""Settings of SGLang's L3 storage."""

from typing import NamedTuple

from kvsim.memory.radix.hicache.options import PrefetchPolicy


class StorageSettings(NamedTuple):
    """Settings of the L3 storage.

    threshold_tokens: shorter finds are not read. timeout_ps, timeout_ps_per_ki_token: how long
    admission skips a request under policy "timeout", plus how much longer for 1,024 tokens.
    retry_passes: passes before a lookup that found too little is repeated. most_retries: most
    repetitions.
    """

    policy: PrefetchPolicy = "timeout"
    threshold_tokens: int = 256
    timeout_ps: int = 10**12
    timeout_ps_per_ki_token: int = 10**12 // 4
    retry_passes: int = 8
    most_retries: int = 8
