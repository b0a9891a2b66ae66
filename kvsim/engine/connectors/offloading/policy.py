"""The interface of eviction policies for chunks in host memory."""

from abc import abstractmethod
from collections.abc import Callable, Container

from kvsim.engine.connectors.offloading.chunk import ChunkContent, HostChunk
from kvsim.sequence import Sequence


class ChunkPolicy:
    """Decides which chunk of host memory is evicted next (vLLM 0.33,
    v1/kv_offload/cpu/policies).
    """

    @abstractmethod
    def missed(self, seq: Sequence, contents: list[ChunkContent]) -> None:
        """`seq` offers content that is not in host memory, head first, perhaps again."""

    @abstractmethod
    def accessed(self, seq: Sequence, chunks: list[HostChunk]) -> None:
        """`seq` offers or loads content for the first time. chunks: those of it that are in host
        memory.
        """

    @abstractmethod
    def inserted(self, seq: Sequence, chunk: HostChunk) -> None:
        """A sequence stores a chunk in host memory."""

    @abstractmethod
    def finished(
        self, seq: Sequence, chunks: list[HostChunk], stored: Container[int], reused: Container[int]
    ) -> None:
        """`seq` is done. chunks: all that it accessed and that are still there, tail first.

        stored: keys that it stored, and never found stored by others; reused: keys that others had
        stored.
        """

    @abstractmethod
    def choose(self, count: int, kept: Container[int]) -> list[HostChunk] | None:
        """Choose `count` evictable chunks, none of them in `kept`, in order of eviction; None:
        there are fewer.
        """

    @abstractmethod
    def evicted(self, chunk: HostChunk) -> None:
        """A chunk that `choose` returned was evicted."""


PolicyMaker = Callable[[int], ChunkPolicy]
