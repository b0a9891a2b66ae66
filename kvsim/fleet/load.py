"""What a replica reports of itself."""

from typing import NamedTuple


class Load(NamedTuple):
    """What a replica reports: requests waiting and running, the share of its pool in use, KV
    tokens in use with those of waiting prompts, and when it was written (ps).
    """

    waiting: int = 0
    running: int = 0
    kv_usage: float = 0.0
    tokens: int = 0
    written_ps: int = 0
