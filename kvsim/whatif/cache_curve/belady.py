"""The bound no policy of a given size passes: Belady's MIN, which knows what comes.

Keep the blocks that are needed again soonest (Belady, "A study of replacement algorithms for a
virtual-storage computer", IBM Systems Journal 5(2), 1966). A block may be dropped as soon as its
prompt is served. The next use of a block is never later than that of those below it, so where ties
go to the upper one a block is never kept without those above it. Block by block: some seconds a
million blocks.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from kvsim.request import Request
from kvsim.whatif.cache_curve.lru import kept_runs
from kvsim.whatif.cache_curve.tree import Node, Tree

_NEVER = 1 << 62


def belady_hits(
    requests: Iterable[Request], num_blocks: int, block_tokens: int, *, outputs: bool = False
) -> int:
    """Prompt tokens found by a cache of `num_blocks` full blocks under MIN, by vLLM's rules: full
    blocks alone, and one token of a prompt at least is computed. outputs: as for the curve.
    """
    paths, usable = _paths(requests, block_tokens, outputs)
    next_use = _next_uses(paths)
    kept: dict[int, int] = {}  # block -> its next use
    order: list[tuple[int, int, int]] = []  # (-next use, -depth, block), some of them outdated
    hits = 0
    for path, most, uses in zip(paths, usable, next_use, strict=True):
        for depth, block in enumerate(path):
            if block not in kept:
                break
            hits += depth < most
        for depth, (block, again) in enumerate(zip(path, uses, strict=True)):
            if again == _NEVER:
                kept.pop(block, None)
                continue
            kept[block] = again
            heappush(order, (-again, -depth, block))
        while len(kept) > num_blocks:
            again, _, block = heappop(order)
            if kept.get(block) == -again:
                del kept[block]
    return hits * block_tokens


def _paths(
    requests: Iterable[Request], block_tokens: int, outputs: bool
) -> tuple[list[list[int]], list[int]]:
    """Each prompt's blocks by number, and how many of them it may find."""
    tree = Tree(block_tokens)
    paths, usable = [], []
    for request in requests:
        nodes: list[Node] = []
        runs = kept_runs(request, outputs=outputs)
        if runs is not None:
            found, made = tree.walk(runs)
            nodes = [*found, *made]
        path = [block for node in nodes for block in range(node.first, node.first + node.count)]
        paths.append(path)
        usable.append((request.prompt_tokens - 1) // block_tokens)
    return paths, usable


def _next_uses(paths: list[list[int]]) -> list[list[int]]:
    """For each block of each path the next prompt that has it."""
    latest: dict[int, int] = {}
    found: list[list[int]] = []
    for index in range(len(paths) - 1, -1, -1):
        found.append([latest.get(block, _NEVER) for block in paths[index]])
        latest.update(dict.fromkeys(paths[index], index))
    return found[::-1]
