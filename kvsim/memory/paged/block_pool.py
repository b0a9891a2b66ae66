"""The pool of blocks: who is free, in which order they go out, and what they still hold.

The free queue, as vLLM keeps it (v1/core/block_pool.py, 0.33): blocks without known content return
to the front and leave first; blocks whose content may still be hit return to the back, so that the
least recently used goes first. That makes the queue three parts in a row: a stack of returned blank
blocks, the blocks never used yet, and the cached ones in order of their return. vLLM 0.11 returned
all blocks to the back (`blank_first = False`). An eviction policy of another kind puts the cached
ones in an order of its own; blank ones then leave first in every version.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from kvsim.memory.paged.eviction.policy import Eviction, FreeContent
from kvsim.memory.paged.kept import OUTPUT
from kvsim.memory.paged.listener import Listener
from kvsim.memory.paged.pool import NumberedPool
from kvsim.plumbing.errors import InvariantError

NULL_BLOCK = 0


class BlockPool(NumberedPool):
    """Blocks 0 .. num_blocks - 1, block 0 set aside as the null block.

    A block may hold content without a key: known, so cached, but nameable by nobody yet.

    eviction: the order of the cached ones (None: least recently used first). on_evict: called with
    each key that a block loses.
    """

    def __init__(
        self, num_blocks: int, *, blank_first: bool = True, eviction: Eviction | None = None
    ) -> None:
        back: FreeContent = OrderedDict() if eviction is None else eviction
        super().__init__(num_blocks, back)
        self.on_evict: Callable[[int], None] | None = None
        self.listener: Listener | None = None
        self.blank_first = blank_first or eviction is not None
        self.eviction = eviction
        self._blank: list[int] = []
        self._fresh = NULL_BLOCK + 1
        self._blank_back: set[int] = set()  # of _back, where blank blocks go there too

    def take(self, count: int) -> list[int]:
        """Take `count` <= num_free blocks from the front of the queue, forgetting their content."""
        blocks = self._take(count)
        if self.listener is not None:
            self.listener.taken(blocks)
        return blocks

    def _take(self, count: int) -> list[int]:
        self.num_free -= count
        if self.num_free < 0:
            raise InvariantError(f"{count} blocks taken from {self.num_free + count} free ones")
        blank = self._blank
        if count <= len(blank):
            if count == 1:
                return [blank.pop()]
            blocks = blank[: -count - 1 : -1]
            if count:
                del blank[-count:]
            return blocks
        blocks = blank[::-1]
        blank.clear()
        fresh = min(count - len(blocks), self.num_blocks - self._fresh)
        if fresh:
            blocks.extend(range(self._fresh, self._fresh + fresh))
            self._fresh += fresh
        blocks.extend(self._evict(count - len(blocks)))
        return blocks

    def _evict(self, count: int) -> list[int]:
        """Take `count` blocks off the back part of the queue, their content forgotten."""
        pop = self._back.popitem
        blocks = [pop(last=False)[0] for _ in range(count)]
        evicted = blocks
        if self._blank_back:
            evicted = [block for block in blocks if block not in self._blank_back]
            self._blank_back.difference_update(blocks)
        if self.eviction is not None:
            for block in evicted:
                self.eviction.forgotten(block, self._names.key_of.get(block))
        self._names.forget_all(evicted, self.on_evict)
        if evicted:
            self.kept.remove(evicted)
            self.num_cached_free -= len(evicted)
            self.num_evicted += len(evicted)
            self.version += 1
        return blocks

    def give_back(
        self, blocks: Sequence[int], num_cached: int, num_prompt: int, *, session: bool = False
    ) -> int:
        """One owner, which belongs to a `session` or not, returns its table; the first `num_cached`
        blocks hold known content, the first `num_prompt` lie in its prompt.

        Blocks others still hold stay with them. Returns how many these are.
        """
        cached = blocks[:num_cached]
        if self.eviction is not None:
            self.eviction.returning(cached, range(len(cached)), session=session)
        return self.give_back_parts(cached, blocks[num_cached:], OUTPUT, num_prompt)

    def give_back_by_keys(
        self,
        blocks: Sequence[int],
        places: Sequence[int],
        why: int,
        num_prompt: int = 0,
        *,
        session: bool = False,
    ) -> int:
        """The same where the blocks with keys, and no others, hold known content. places: of each
        in its table. why: what they are cached for, but for the first `num_prompt`.
        """
        key_of = self._names.key_of
        cached = [block for block in blocks if block in key_of]
        if self.eviction is not None:
            kept = [place for block, place in zip(blocks, places, strict=True) if block in key_of]
            self.eviction.returning(cached, kept, session=session)
        if len(cached) == len(blocks):
            return self.give_back_parts(blocks, (), why, num_prompt)
        if num_prompt:
            num_prompt = sum(block in key_of for block in blocks[:num_prompt])
        blank = [block for block in blocks if block not in key_of]
        shared = self.give_back_parts(cached, blank, why, num_prompt)
        if not self.blank_first:  # the end goes before the beginning, whatever they hold
            free = [block for block in reversed(blocks) if block in self._back]
            for block in free:
                del self._back[block]
            self._back.update(dict.fromkeys(free))
        return shared

    def give_back_parts(
        self, cached: Sequence[int], blank: Sequence[int], why: int, num_prompt: int = 0
    ) -> int:
        """The same where some of the blocks, in the order of the table, hold known content, kept
        for `why` but for the first `num_prompt`. Where an eviction policy chooses, it has been told
        of them.
        """
        back, extra_refs, shared = self._back, self._extra_refs, 0
        num_blocks, num_cached = len(cached) + len(blank), len(cached)
        if extra_refs and not extra_refs.keys().isdisjoint(blank):
            blank = [block for block in blank if not self.drop(block)]
            shared = num_blocks - num_cached - len(blank)
        if self.blank_first:
            self._blank.extend(blank)
        else:
            back.update(dict.fromkeys(reversed(blank)))
            self._blank_back.update(blank)
        others = cached[num_prompt:] if num_prompt else cached
        if extra_refs.keys().isdisjoint(cached):
            back.update(dict.fromkeys(reversed(cached)))
        else:
            cached = [block for block in reversed(cached) if not self.drop(block)]
            back.update(dict.fromkeys(cached))
            shared += num_cached - len(cached)
            others = [block for block in others if block in back]
        self.kept.add(others, why)
        self.version += 1
        self.num_cached_free += len(cached)
        self.num_free += num_blocks - shared
        if self.listener is not None:
            self.listener.freed(cached, blank)
        return shared

    def share(self, blocks: Iterable[int]) -> int:
        if self.eviction is not None:
            blocks = list(blocks)
            for block in blocks:
                self.eviction.found(block)
        return super().share(blocks)

    def _revived(self, blocks: Sequence[int]) -> None:
        if self.listener is not None:
            self.listener.revived(blocks)

    def register(self, blocks: Sequence[int], keys: Sequence[int]) -> None:
        super().register(blocks, keys)
        if self.eviction is not None:
            for block, key in zip(blocks, keys, strict=True):
                self.eviction.registered(block, key)

    def move_keys(self, block: int, other: int) -> int:
        """What `block` was found by, `other`, which has no key, is found by from now on. Returns
        the first of these keys.
        """
        keys = self.forget(block)
        for key in keys:
            self.add_key(other, key)
        return keys[0]

    def is_cached(self, block: int) -> bool:
        """Whether `block` is free and its content may still be hit."""
        return block in self._back and block not in self._blank_back

    def free_queue(self) -> list[int]:
        """The free blocks, in the order in which they go out."""
        return [*reversed(self._blank), *range(self._fresh, self.num_blocks), *self._back]

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise InvariantError unless every block is free or owned, never both, never lost."""
        owners: dict[int, int] = {}
        for table in tables:
            for block in table:
                owners[block] = owners.get(block, 0) + 1
        free = self.free_queue()
        if len(free) != self.num_free or len(set(free)) != len(free):
            raise InvariantError(f"free queue holds {len(free)} blocks, counted {self.num_free}")
        if NULL_BLOCK in owners or NULL_BLOCK in free:
            raise InvariantError("the null block was handed out")
        both = owners.keys() & set(free)
        if both or len(owners) + len(free) != self.num_blocks - 1:
            raise InvariantError(
                f"{len(owners)} owned + {len(free)} free of {self.num_blocks - 1}; both: {both}"
            )
        wrong = {b: n for b, n in owners.items() if n != 1 + self._extra_refs.get(b, 0)}
        if wrong or self._extra_refs.keys() - owners.keys():
            raise InvariantError(f"reference counts differ from owners: {wrong}")
        if len(self._back) - len(self._blank_back) != self.num_cached_free:
            raise InvariantError(f"cached free blocks miscounted as {self.num_cached_free}")
        self.kept.check({block for block in free if self.is_cached(block)})
