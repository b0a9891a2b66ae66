"""What the blocks of a pool are found by: of those with one key, the one that has it longest."""

from collections.abc import Callable, Iterable, Sequence


class BlockNames:
    """Keys of blocks (see content.py). key_of: the first key of each block that has one.

    A block may have more of them, and several blocks the same one.
    """

    def __init__(self) -> None:
        self.key_of: dict[int, int] = {}
        self._oldest: dict[int, int] = {}
        self._younger: dict[int, list[int]] = {}  # other blocks with the same key, by age
        self._more_keys: dict[int, list[int]] = {}  # of blocks with several

    def register(self, blocks: Sequence[int], keys: Sequence[int]) -> None:
        """Each block, which had no key, has its key from now on."""
        self.key_of.update(zip(blocks, keys, strict=True))
        if self._oldest.keys().isdisjoint(keys):
            self._oldest.update(zip(keys, blocks, strict=True))
        else:
            for block, key in zip(blocks, keys, strict=True):
                self._hold(block, key)

    def _hold(self, block: int, key: int) -> None:
        if self._oldest.setdefault(key, block) != block:
            self._younger.setdefault(key, []).append(block)

    def add(self, block: int, key: int) -> bool:
        """A block with a key has another one; False: it had it already."""
        more = self._more_keys.get(block, ())
        if key == self.key_of[block] or key in more:
            return False
        self._more_keys[block] = [*more, key]
        self._hold(block, key)
        return True

    def find(self, keys: Iterable[int]) -> list[int]:
        """The oldest blocks with these keys, up to the first key that none has."""
        blocks: list[int] = []
        found = self._oldest.get
        for key in keys:
            block = found(key)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def with_younger(self, keys: Sequence[int]) -> list[int]:
        """The oldest blocks with those of the keys that several blocks have."""
        twice = self._younger.keys() & keys if self._younger else ()
        return [self._oldest[key] for key in twice]

    def forget(self, block: int) -> list[int]:
        """A block has no key any more; returns those it had."""
        first = self.key_of.pop(block, None)
        if first is None:
            return []
        self._leave(first, block)
        more = self._more_keys.pop(block, [])
        for key in more:
            self._leave(key, block)
        return [first, *more]

    def forget_all(self, blocks: Sequence[int], told: Callable[[int], None] | None) -> None:
        """The same of many. told: hears the first key of each."""
        key_of, oldest = self.key_of, self._oldest
        for block in () if key_of.keys().isdisjoint(blocks) else blocks:
            key = key_of.pop(block, None)
            if key is None:
                continue
            if told is not None:
                told(key)
            if key in self._younger:
                self._leave(key, block)
            else:
                del oldest[key]
            if self._more_keys:
                for other in self._more_keys.pop(block, ()):
                    self._leave(other, block)

    def _leave(self, key: int, block: int) -> None:
        """`block` no longer has `key`; the next one by age is found, if it was this one."""
        younger = self._younger.get(key)
        if younger is None:
            del self._oldest[key]
            return
        if self._oldest[key] == block:
            self._oldest[key] = younger.pop(0)
        else:
            younger.remove(block)
        if not younger:
            del self._younger[key]
