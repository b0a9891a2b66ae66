"""What an eviction policy promises the pool of blocks."""

from abc import abstractmethod
from collections.abc import Iterator, KeysView, Mapping, MutableMapping, Sequence
from typing import ClassVar, Protocol

from kvsim.memory.paged.session_hint import SessionHint
from kvsim.plumbing.options import Options


class FreeContent(Protocol):
    """The free blocks that still hold content, as a mapping from each to nothing: who comes back is
    put in, who is found again is taken out, and `popitem(last=False)` gives up who goes first.

    An OrderedDict is one: least recently used first.
    """

    def __contains__(self, block: object, /) -> bool: ...

    def __delitem__(self, block: int, /) -> None: ...

    def __iter__(self) -> Iterator[int]: ...

    def __len__(self) -> int: ...

    def keys(self) -> KeysView[int]:
        """The blocks."""
        ...

    def popitem(self, last: bool = True) -> tuple[int, None]:
        """Take the first out; not empty."""
        ...

    def update(self, blocks: Mapping[int, None], /) -> None:
        """Put these in, which come back from one sequence, the end of it first."""
        ...


class Eviction(MutableMapping[int, None]):
    """A policy at work, which hears in addition what happens to content.

    A subclass says which block goes first: `_first`. Of blocks alike it takes the one that came
    back first, so that of one sequence the end goes before the beginning: content behind a gap is
    never found.
    """

    @abstractmethod
    def _first(self) -> int:
        """The block that goes first; there is one."""

    def __getitem__(self, block: int) -> None:
        if block not in self:
            raise KeyError(block)

    def popitem(self, last: bool = False) -> tuple[int, None]:
        """Take the one out that goes first."""
        block = self._first()
        del self[block]
        return block, None

    # --- time ------------------------------------------------------------------------------------

    lapses: ClassVar[bool] = False  # content may be kept for a time
    next_lapse_ps: int | None = None  # when some of it next lapses

    def pass_time(self, now_ps: int) -> None:
        """It is now_ps, and a step is about to be scheduled."""

    # --- what it hears --------------------------------------------------------------------------

    def registered(self, block: int, key: int) -> None:
        """`block`, in use, holds the content named `key` from now on."""

    def found(self, block: int) -> None:
        """One more sequence has found the content of `block`, which is in use or about to be."""

    def returning(self, blocks: Sequence[int], places: Sequence[int], *, hint: SessionHint) -> None:
        """A sequence gives these blocks back, first to last of its table, at these places of it;
        those that nobody else holds are put in next. hint: what is known of its session.
        """

    def forgotten(self, block: int, key: int | None) -> None:
        """`block` has been given up; key: what it held, None if nobody could name it."""


class EvictionPolicy(Options):
    """Chooses which content goes when blocks run out; its fields are its options.

    hinted: it asks which request is the last one of its session. ranks: it chooses by itself, among
    single blocks; if not, the pool keeps its own order.
    """

    hinted: ClassVar[bool] = False
    ranks: ClassVar[bool] = True

    @abstractmethod
    def build(self, num_blocks: int, block_tokens: int) -> Eviction | None:
        """The policy at work on a pool of `num_blocks` blocks; None: the pool's own order."""
        raise NotImplementedError(type(self).__name__)  # every registered policy overrides this
