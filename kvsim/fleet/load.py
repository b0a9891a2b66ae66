"""Load reports of a replica."""

from typing import NamedTuple


class Load(NamedTuple):
    """A replica's load report: requests waiting and running, share of the pool in use, and KV
    tokens in use plus those of waiting prompts. It has the time in ps when it was written.
    """

    waiting: int = 0
    running: int = 0
    kv_usage: float = 0.0
    tokens: int = 0
    written_ps: int = 0
