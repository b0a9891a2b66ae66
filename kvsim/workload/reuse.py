"""Prefix reuse of a trace: the share of prompt tokens that a prefix cache could hit, by the trace's
own hashed blocks.

The convention: a request's hit is min(matched leading blocks * block tokens, prompt). Its blocks
are cached from its arrival on, including the last partial block. A bounded cache is LRU and touches
a request's blocks from the tail, so that the first block is the newest.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.workload.traces.record import HashIds, Trace


class Reuse(NamedTuple):
    """Distinct and total blocks of a trace, and its hit ratio with a cache that never evicts."""

    unique_blocks: int
    block_references: int
    ideal_token_hit_ratio: float
    ideal_block_hit_ratio: float


def reuse(trace: Trace) -> Reuse:
    """The prefix reuse of a trace; InputError if the trace has no hash ids."""
    _block_tokens(trace)
    unique = {block for row in trace.rows for block in row.hash_ids or ()}
    references = sum(len(row.hash_ids or ()) for row in trace.rows)
    return Reuse(
        unique_blocks=len(unique),
        block_references=references,
        ideal_token_hit_ratio=lru_token_hit_ratio(trace, len(unique)),
        ideal_block_hit_ratio=1 - len(unique) / references if references else 0.0,
    )


def lru_token_hit_ratio(trace: Trace, capacity_blocks: int) -> float:
    """Share of all prompt tokens hit with an LRU cache of `capacity_blocks` blocks."""
    block_tokens = _block_tokens(trace)
    cache: OrderedDict[int, None] = OrderedDict()
    hit_tokens = 0
    for row in trace.rows:
        ids = row.hash_ids or ()
        hit_tokens += min(_matched(ids, cache) * block_tokens, row.prompt_tokens)
        for block in reversed(ids):
            cache[block] = None
            cache.move_to_end(block)
            if len(cache) > capacity_blocks:
                cache.popitem(last=False)
    return hit_tokens / sum(row.prompt_tokens for row in trace.rows)


def lru_curve(trace: Trace, capacities: Sequence[int]) -> dict[int, float]:
    """Token hit ratio for each cache size in blocks."""
    return {blocks: lru_token_hit_ratio(trace, blocks) for blocks in capacities}


def _matched(ids: HashIds, cache: OrderedDict[int, None]) -> int:
    for count, block in enumerate(ids):
        if block not in cache:
            return count
    return len(ids)


def _block_tokens(trace: Trace) -> int:
    if trace.hash_block_tokens is None:
        raise InputError("the trace has no hash ids", where=trace.name)
    return trace.hash_block_tokens
