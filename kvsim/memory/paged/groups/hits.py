"""What a prefix cache with several groups of layers can give a sequence.

All groups must know the same prefix. Full attention needs all of it; a window needs the blocks that
hold the last W - 1 tokens, so those below may be forgotten. Group g names a block by the content's
key times the number of groups, plus g.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.memory.paged.block_pool import BlockPool
from kvsim.plumbing.units import ceil_div


class Hits(NamedTuple):
    """num_blocks: of the common prefix. first, blocks: for each group the position of the first
    block it keeps, and the blocks from there to the prefix's end.

    junction: blocks of the longest prefix that some group knew, where that is more; else 0. Others
    have shared so much before: whoever computes it now keeps what the other groups need there.
    """

    num_blocks: int
    first: tuple[int, ...]
    blocks: tuple[list[int], ...]
    junction: int = 0


def skipped_blocks(window_tokens: int | None, computed: int, block_size: int) -> int:
    """Leading blocks that no token after the first `computed` ones attends to."""
    if window_tokens is None:
        return 0
    return max(0, computed - window_tokens + 1) // block_size


def longest_hit(
    pool: BlockPool, windows: Sequence[int | None], keys: Sequence[int], block_size: int
) -> Hits:
    """The longest prefix of the blocks named by `keys` that every group can continue from.

    windows: how many tokens back each group looks, None for all.
    """
    num = len(windows)
    alike: dict[int | None, list[int]] = {}
    for g, window in enumerate(windows):
        alike.setdefault(window, []).append(g)
    count, longest = len(keys), -1
    for g in alike.pop(None, ()):
        count = longest = len(pool.find([key * num + g for key in keys[:count]]))
    before = -1
    while count != before:
        before = count
        for window, members in alike.items():
            assert window is not None
            need = ceil_div(window - 1, block_size)
            count = _windowed(pool, members, num, keys, count, need)
            longest = max(longest, count)
    first = tuple(skipped_blocks(window, count * block_size, block_size) for window in windows)
    blocks = tuple(
        pool.find([key * num + g for key in keys[start:count]]) for g, start in enumerate(first)
    )
    return Hits(count, first, blocks, longest if longest > count and num > 1 else 0)


def _windowed(
    pool: BlockPool, members: list[int], num: int, keys: Sequence[int], count: int, need: int
) -> int:
    """The longest prefix, at most `count` blocks, whose last `need` blocks all `members` know."""
    run, end = 0, count
    for index in range(count - 1, -1, -1):
        if all(pool.find((keys[index] * num + g,)) for g in members):
            run += 1
            if run >= need:
                return end
        else:
            run, end = 0, index
    return run
