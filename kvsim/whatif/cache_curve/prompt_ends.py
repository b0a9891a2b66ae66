"""Hits of a cache that stores recurrent states where prompts ended.

A state is cached where a chunk ended: at the last unit of each prompt, or at a block's end. A
prompt that continues from there, or is sent again, hits it. A prompt that only shares a prefix
finds no state inside a block (vLLM 0.33, v1/core/single_type_kv_cache_manager.py, `MambaManager`).
"""

from bisect import bisect_right, insort
from collections.abc import Iterable

from kvsim.request import Request
from kvsim.whatif.cache_curve.lru import kept_runs
from kvsim.whatif.cache_curve.tree import PromptTree


def found_at_ends(
    requests: Iterable[Request], block_tokens: int, unit_tokens: int, *, outputs: bool
) -> float:
    """Share of the prompt tokens that an infinite cache hits if hits end at block boundaries or
    after the last unit of an earlier prompt.

    outputs: generated tokens are cached too.
    """
    tree = PromptTree(unit_tokens)
    ends: list[int] = []  # units that prompts ended with, by their numbers in the tree
    queried = hits = 0
    for request in requests:
        queried += request.prompt_tokens
        runs = kept_runs(request, outputs=outputs)
        if runs is None:
            continue
        usable = (request.prompt_tokens - 1) // unit_tokens
        found, made = tree.walk(runs)
        best = passed = 0
        for node in found:
            count = min(node.count, usable - passed)
            if count <= 0:
                break
            at = bisect_right(ends, node.first + count - 1)
            if at and ends[at - 1] >= node.first:
                best = passed + ends[at - 1] - node.first + 1
            passed += count
        whole = passed * unit_tokens // block_tokens * block_tokens
        hits += max(best * unit_tokens, whole)
        passed = 0
        for node in (*found, *made):
            if passed < usable <= passed + node.count:
                end = node.first + usable - passed - 1
                at = bisect_right(ends, end)
                if not at or ends[at - 1] != end:
                    insort(ends, end)
            passed += node.count
    return hits / queried if queried else 0.0
