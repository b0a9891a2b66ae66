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
        """`seq` offers contents that are not in host memory, head first, maybe not for the first
        time.
        """

    @abstractmethod
    def accessed(self, seq: Sequence, chunks: list[HostChunk]) -> None:
        """`seq` offers or loads contents for the first time. chunks: the chunks of these contents
        that are in host memory.
        """

    @abstractmethod
    def inserted(self, seq: Sequence, chunk: HostChunk) -> None:
        """`seq` stores `chunk`, which was not in host memory."""

    @abstractmethod
    def finished(
        self, seq: Sequence, chunks: list[HostChunk], stored: Container[int], reused: Container[int]
    ) -> None:
        """`seq` has finished. chunks: all chunks in host memory that it offered or loaded, tail
        first.

        stored: keys that it stored, and that no other sequence had stored before. reused: keys that
        other sequences had stored.
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
