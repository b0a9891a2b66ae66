"""A chunk of KV in host memory: the unit of storing, of one or more blocks."""


class ChunkContent:
    """The content of a chunk, which a lookup compares.

    key: identifies all tokens up to the chunk's end in one layer group. end: number of tokens from
    the start of the sequence to the end of the chunk. group: index of the layer group.
    """

    __slots__ = ("end", "group", "key")

    def __init__(self, key: int, end: int, group: int) -> None:
        self.key, self.end, self.group = key, end, group


class HostChunk:
    """A chunk with a slot of host memory.

    content: what the slot holds once the chunk is `ready`. slot: index of its slot. pins: number of
    copies that are reading it, to the device or to another tier. rank: set by the eviction
    policy; lower ranks are evicted first.
    """

    __slots__ = ("content", "key", "pins", "rank", "ready", "slot")

    def __init__(self, content: ChunkContent, slot: int) -> None:
        self.content, self.slot = content, slot
        self.key = content.key
        self.ready = False
        self.pins = self.rank = 0

    @property
    def evictable(self) -> bool:
        """Whether it can be evicted: no copy writes or reads it."""
        return self.ready and not self.pins
