"""Why free blocks are cached: what they were to whoever gave them back last.

Rules of retention tell blocks apart by the layers they belong to, and what a prompt made from what
was generated (vLLM 0.33, v1/core/single_type_kv_cache_manager.py): full attention keeps every
block, windows and states those that a request can go on from.
"""

from collections.abc import Iterable, Sequence, Set
from typing import Final

from kvsim.plumbing.errors import InvariantError

PROMPT: Final = 0  # full attention, in the prompt of who held it
OUTPUT: Final = 1  # full attention, behind it
WINDOW: Final = 2
STATE: Final = 3


class Kept:
    """Of the cached blocks of a pool that are kept for another reason than PROMPT, the reason.

    nums: how many there are, by reason; of PROMPT it counts none.
    """

    def __init__(self) -> None:
        self.nums = [0, 0, 0, 0]
        self._why: dict[int, int] = {}

    def add(self, blocks: Sequence[int], why: int) -> None:
        """These free blocks are cached from now on."""
        if why != PROMPT and blocks:
            self._why.update(dict.fromkeys(blocks, why))
            self.nums[why] += len(blocks)

    def remove(self, blocks: Iterable[int]) -> None:
        """These are not any more."""
        reasons, nums = self._why, self.nums
        if reasons:
            for block in blocks:
                why = reasons.pop(block, PROMPT)
                if why != PROMPT:
                    nums[why] -= 1

    def count(self, why: int, more: int) -> None:
        """So many more free blocks that nobody can name (negative: less) are cached."""
        if why != PROMPT:
            self.nums[why] += more

    def check(self, cached: Set[int], nameless: Iterable[tuple[int, int]] = ()) -> None:
        """Raise InvariantError unless all these are cached blocks, and they and those without names
        (how many, and why) are as many as counted.
        """
        found = [0, 0, 0, 0]
        for num, why in (*((1, why) for why in self._why.values()), *nameless):
            if why != PROMPT:
                found[why] += num
        if self._why.keys() - cached or found != self.nums:
            raise InvariantError(f"cached blocks by reason are {found}, counted {self.nums}")
