"""A chunk of KV in host memory, the unit of storing."""

from typing import NamedTuple


class ChunkContent(NamedTuple):
    """Content of a chunk, as the connector looks it up.

    key: of these tokens in one group of layers. end: number of tokens from the start of the
    sequence to the end of the chunk. group: index of the group.
    """

    key: int
    end: int
    group: int


class HostChunk:
    """content: what it holds, or will hold when it is ready. slot: its place in host memory. pins:
    copies that read it, on their way to the device or to a tier.
    """

    __slots__ = ("content", "pins", "ready", "slot")

    def __init__(self, content: ChunkContent, slot: int) -> None:
        self.content, self.slot = content, slot
        self.ready = False
        self.pins = 0

    @property
    def key(self) -> int:
        """The key of its content."""
        return self.content.key

    @property
    def evictable(self) -> bool:
        """Whether its slot can be taken: nothing writes or reads it."""
        return self.ready and not self.pins
