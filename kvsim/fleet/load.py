"""Load reports of a replica."""

from typing import NamedTuple


class Load(NamedTuple):
    """A replica's report: requests waiting and running, the share of its pool in use, KV tokens in
    use with those of waiting prompts.

    Also the time it was written (ps).
    """

    waiting: int = 0
    running: int = 0
    kv_usage: float = 0.0
    tokens: int = 0
    written_ps: int = 0
