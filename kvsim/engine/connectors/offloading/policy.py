"""Eviction policies of host memory: the events that a policy receives, and what it answers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container

from kvsim.engine.connectors.offloading.chunk import ChunkContent, HostChunk
from kvsim.sequence import Sequence


class ChunkPolicy(ABC):
    """An order of the chunks that are in host memory (vLLM 0.33, v1/kv_offload/cpu/policies)."""

    @abstractmethod
    def missed(self, keys: list[int]) -> None:
        """A sequence offers, for the first time, content that is not in host memory; head first."""

    @abstractmethod
    def accessed(self, seq: Sequence, contents: list[ChunkContent]) -> None:
        """A sequence offers or loads, for the first time, content that is in host memory or should
        be there.
        """

    @abstractmethod
    def inserted(self, seq: Sequence, chunk: HostChunk) -> None:
        """A sequence puts a chunk into host memory."""

    @abstractmethod
    def finished(
        self, seq: Sequence, keys: list[int], stored: Container[int], reused: Container[int]
    ) -> None:
        """A sequence is done. keys: of all it accessed, tail first. stored: of these, what it put
        into host memory and never found there; reused: what others had put there.
        """

    @abstractmethod
    def choose(self, count: int, kept: Container[int]) -> list[HostChunk] | None:
        """`count` evictable chunks, without the keys `kept`, in the order of their eviction; None:
        there are fewer.
        """

    @abstractmethod
    def evicted(self, chunk: HostChunk) -> None:
        """A chunk that `choose` named has left."""


PolicyMaker = Callable[[int], ChunkPolicy]
