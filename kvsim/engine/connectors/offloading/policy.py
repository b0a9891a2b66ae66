"""Who leaves host memory first: what a policy hears, and what it is asked."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container

from kvsim.engine.connectors.offloading.chunk import HostChunk
from kvsim.sequence import Sequence


class ChunkPolicy(ABC):
    """An order of the chunks that are in host memory (vLLM 0.33, v1/kv_offload/cpu/policies)."""

    @abstractmethod
    def missed(self, seq: Sequence, keys: list[int]) -> None:
        """A sequence offers content that is not in host memory, head first."""

    @abstractmethod
    def inserted(self, seq: Sequence, chunk: HostChunk) -> None:
        """A sequence puts a chunk into host memory."""

    @abstractmethod
    def reused(self, seq: Sequence, chunk: HostChunk) -> None:
        """A sequence offers what is there and ready, or loads it, and has not put it there."""

    @abstractmethod
    def finished(self, seq: Sequence) -> None:
        """A sequence is done: what it touched is as recent as can be."""

    @abstractmethod
    def choose(self, count: int, kept: Container[int]) -> list[HostChunk] | None:
        """So many evictable chunks, but none of the keys `kept`, in the order in which they leave;
        None: there are not so many.
        """

    @abstractmethod
    def evicted(self, chunk: HostChunk) -> None:
        """A chunk that `choose` named has left."""


PolicyMaker = Callable[[int], ChunkPolicy]
