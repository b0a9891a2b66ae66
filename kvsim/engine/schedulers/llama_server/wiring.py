"""The parts of a server, put together."""

from typing import NamedTuple

from kvsim.engine.schedulers.llama_server.host_cache import HostCache
from kvsim.engine.schedulers.llama_server.settings import SlotSettings


class Wiring(NamedTuple):
    """Slots, their settings, and the host prompt cache, if there is one."""

    num_slots: int
    settings: SlotSettings
    host: HostCache | None
