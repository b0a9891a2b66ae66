"""A chunk of KV in host memory, the unit of storing."""


class ChunkContent:
    """Content of a chunk, as the connector looks it up.

    key: of these tokens in one group of layers. end: number of tokens from the start of the
    sequence to the end of the chunk. group: index of the group.
    """

    __slots__ = ("end", "group", "key")

    def __init__(self, key: int, end: int, group: int) -> None:
        self.key, self.end, self.group = key, end, group


class HostChunk:
    """content: what it holds, or will hold when it is ready. slot: its place in host memory. pins:
    copies that read it, on their way to the device or to a tier.
    """

    __slots__ = ("content", "key", "pins", "ready", "slot")

    def __init__(self, content: ChunkContent, slot: int) -> None:
        self.content, self.slot = content, slot
        self.key = content.key
        self.ready = False
        self.pins = 0

    @property
    def evictable(self) -> bool:
        """Whether its slot can be taken: nothing writes or reads it."""
        return self.ready and not self.pins
