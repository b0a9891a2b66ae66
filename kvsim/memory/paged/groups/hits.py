"""What a prefix cache with several groups of layers can give a sequence.

All groups must know the same prefix. Full attention needs all of it; a window needs the blocks that
hold the last W - 1 tokens, so those below may be forgotten. Group g names a block by the content's
key times the number of groups, plus g.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.groups.grouping import BlockGroup
from kvsim.plumbing.units import ceil_div

STATE_WINDOW = 2  # a state goes on from the one before it


class Hits(NamedTuple):
    """tokens: of the common prefix, which lies in num_blocks blocks and may end inside the last.
    first, blocks: for each group the position of the first block it keeps, and the blocks from
    there to the prefix's end.

    junction: tokens of the longest prefix that some group knew, where that is more; else 0. Others
    have shared so much before: whoever computes it now keeps what the other groups need there.
    """

    tokens: int
    num_blocks: int
    first: tuple[int, ...]
    blocks: tuple[list[int], ...]
    junction: int = 0


def looks_back(groups: Sequence[BlockGroup], *, states_kept: bool) -> list[int | None]:
    """How many tokens back each group looks, None for all."""
    return [
        STATE_WINDOW if states_kept and group.state_bytes else group.window_tokens
        for group in groups
    ]


def skipped_blocks(window_tokens: int | None, computed: int, block_size: int) -> int:
    """Leading blocks that no token after the first `computed` ones attends to."""
    if window_tokens is None:
        return 0
    return max(0, computed - window_tokens + 1) // block_size


def longest_hit(
    pool: BlockPool,
    windows: Sequence[int | None],
    keys: Sequence[int],
    most: int,
    block_size: int,
    drops: Sequence[bool],
) -> Hits:
    """The longest prefix of the blocks named by `keys`, at most `most` of them, that every group
    can continue from.

    windows: how many tokens back each group looks, None for all. drops: which groups lose the last
    block they know, since a drafter's layers must see it computed again; they may know one block
    beyond the prefix (vLLM 0.33, `HybridKVCacheCoordinator.find_longest_cache_hit`).
    """
    num = len(windows)
    if not keys:
        return Hits(0, 0, (0,) * num, tuple([] for _ in windows))
    alike: dict[int | None, list[int]] = {}
    for g, window in enumerate(windows):
        alike.setdefault(window, []).append(g)
    dropping = {window for window, members in alike.items() if any(drops[g] for g in members)}
    known, longest = most, 0  # of full attention; of any group
    # With one group of layers nobody knows more than the prefix (`UnitaryKVCacheCoordinator`).
    beyond = int(num > 1)
    full = alike.pop(None, ())
    if full:
        top = min(most + beyond, len(keys)) if None in dropping else most
        known = min(len(pool.find([key * num + g for key in keys[:top]])) for g in full)
        known = longest = max(0, known - (None in dropping))
    count, dropped = most, set[int | None]()
    while True:
        before, count = count, min(count, known)
        for window, members in alike.items():
            assert window is not None
            drop = window in dropping and window not in dropped
            top = min(count + drop * beyond, len(keys))
            need = ceil_div(window - 1, block_size) + drop
            found = max(0, _windowed(pool, members, num, keys, top, need) - drop)
            if drop:
                dropped.add(window)
            elif found < count:
                dropped.clear()
            count = found
            longest = max(longest, count)
        if count >= before or (full and len(alike) == 1):
            break
    tokens = count * block_size
    first = tuple(skipped_blocks(window, tokens, block_size) for window in windows)
    blocks = tuple(
        pool.find([key * num + g for key in keys[start:count]]) for g, start in enumerate(first)
    )
    junction = longest * block_size if longest > count and num > 1 else 0
    return Hits(tokens, count, first, blocks, junction)


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
