"""The parts of a llama-server scheduler."""

from typing import NamedTuple

from kvsim.engine.schedulers.llama_server.host_cache import HostCache
from kvsim.engine.schedulers.llama_server.settings import SlotSettings


class Wiring(NamedTuple):
    """Number of slots, their settings, and the host prompt cache; None without one."""

    num_slots: int
    settings: SlotSettings
    host: HostCache | None
