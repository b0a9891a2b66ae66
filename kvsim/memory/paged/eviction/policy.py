"""The interface between an eviction policy and the pool of blocks."""

from abc import abstractmethod
from collections.abc import Iterator, KeysView, Mapping, MutableMapping, Sequence
from typing import ClassVar, Protocol

from kvsim.memory.paged.session_hint import SessionHint
from kvsim.plumbing.options import Options


class FreeContent(Protocol):
    """The free blocks with cached content, as a mapping from block number to None. Freed blocks are
    added, hit blocks removed, and `popitem(last=False)` evicts the first. An OrderedDict gives
    least recently used first.
    """

    def __contains__(self, block: object, /) -> bool: ...

    def __delitem__(self, block: int, /) -> None: ...

    def __iter__(self) -> Iterator[int]: ...

    def __len__(self) -> int: ...

    def keys(self) -> KeysView[int]:
        """Iterate over the blocks."""
        ...

    def popitem(self, last: bool = True) -> tuple[int, None]:
        """Evict and return the first block; there is at least one."""
        ...

    def update(self, blocks: Mapping[int, None], /) -> None:
        """Add the blocks that one sequence frees, the end of its table first."""
        ...


class Eviction(MutableMapping[int, None]):
    """The state of an eviction policy on one pool, which is also notified of changes of content.

    A subclass chooses the block to evict (`_first`), among equal blocks the one that was freed
    first. The end of a sequence is then evicted before its beginning: content after a gap is never
    hit.
    """

    @abstractmethod
    def _first(self) -> int:
        """The block number to evict next; there is at least one."""

    def __getitem__(self, block: int) -> None:
        if block not in self:
            raise KeyError(block)

    def popitem(self, last: bool = False) -> tuple[int, None]:
        """Remove the block to evict."""
        block = self._first()
        del self[block]
        return block, None

    # --- time ------------------------------------------------------------------------------------

    lapses: ClassVar[bool] = False  # content may expire
    next_lapse_ps: int | None = None  # when content next expires

    def pass_time(self, now_ps: int) -> None:
        """Set the time to now_ps, before a step is scheduled."""

    # --- what it hears --------------------------------------------------------------------------

    def registered(self, block: int, key: int) -> None:
        """Notify: `block`, in use, now caches the content with this key."""

    def found(self, block: int) -> None:
        """Notify: one more sequence has hit `block`, which is in use or about to be."""

    def returning(self, blocks: Sequence[int], places: Sequence[int], *, hint: SessionHint) -> None:
        """Notify: a sequence frees `blocks`, first to last, at `places` of its block table. Blocks
        without other owners are added next. hint: the session of its request.
        """

    def forgotten(self, block: int, key: int | None) -> None:
        """Notify: `block` was evicted. key: key of its content, None if it had none."""


class EvictionPolicy(Options):
    """Chooses the content to evict when blocks run out; its fields are its options.

    hinted: whether it reads the session hints of requests. ranks: whether it chooses among single
    blocks; if not, the pool's own order applies. by_priority: whether it uses the priorities of
    requests.
    """

    hinted: ClassVar[bool] = False
    ranks: ClassVar[bool] = True
    by_priority: ClassVar[bool] = False

    @abstractmethod
    def build(self, num_blocks: int, block_tokens: int) -> Eviction | None:
        """The policy's state on a pool of `num_blocks` blocks; None: the pool's own order."""
        raise NotImplementedError(type(self).__name__)  # every registered policy overrides this
