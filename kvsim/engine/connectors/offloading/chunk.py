"""A chunk of KV in host memory: the unit of storing."""


class HostChunk:
    """Content by its key, in one slot of the host's pool.

    end: how many chunks of its group a sequence has up to its end. ready: its copy has been
    reported; else it is being written. pins: how many copies read it, to the device or to a tier.
    """

    __slots__ = ("end", "key", "pins", "ready", "slot")

    def __init__(self, key: int, slot: int, end: int) -> None:
        self.key, self.slot, self.end = key, slot, end
        self.ready = False
        self.pins = 0

    @property
    def evictable(self) -> bool:
        """Whether its slot can be taken: nothing writes or reads it."""
        return self.ready and not self.pins
