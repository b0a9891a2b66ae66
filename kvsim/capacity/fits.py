"""How many sequences of one length fit into an empty pool, by allocator, in closed form.

    max-buffer  capacity // (slots of the longest sequence)
    doubling    capacity // (the smallest initial * 2^k slots that hold the tokens, at most the
                longest sequence's)
    paged       (capacity - the null block) // (the sequence's blocks, group by group)

A contiguous buffer keeps every token in every layer. Blocks below a sliding window are given back,
so a window of W tokens holds at most ceil((W - 1) / block_size) + 1 blocks, wherever it begins.
Recurrent states are paid once a sequence. Buffers that grow also live beside their successors while
they are copied, which is not counted here.
"""

from typing import NamedTuple

from kvsim.layout import KVLayout
from kvsim.plumbing.units import ceil_div


class Fit(NamedTuple):
    """Sequences of `tokens` tokens that fit at once; bytes: what one of them needs at least."""

    tokens: int
    bytes: int
    max_buffer: int
    doubling: int
    paged: int


def fit(
    layout: KVLayout,
    capacity_bytes: int,
    tokens: int,
    *,
    max_model_len: int,
    block_size: int,
    initial_tokens: int,
) -> Fit:
    """The counts for sequences of 1 <= tokens <= max_model_len tokens."""
    token_bytes = layout.bytes_per_token
    state_bytes = sum(group.state_bytes for group in layout.groups)
    slots = initial_tokens
    while slots < tokens:
        slots *= 2
    slots = min(slots, max_model_len)
    null_block = block_size * token_bytes
    return Fit(
        tokens=tokens,
        bytes=layout.sequence_bytes(tokens),
        max_buffer=capacity_bytes // (token_bytes * max_model_len + state_bytes),
        doubling=capacity_bytes // (token_bytes * slots + state_bytes),
        paged=max(0, capacity_bytes - null_block) // paged_bytes(layout, tokens, block_size),
    )


def paged_bytes(layout: KVLayout, tokens: int, block_size: int) -> int:
    """Bytes of the blocks (and states) that one sequence of `tokens` tokens holds at most."""
    total = 0
    for group in layout.groups:
        blocks = ceil_div(tokens, block_size)
        if group.window_tokens is not None:
            blocks = min(blocks, ceil_div(group.window_tokens - 1, block_size) + 1)
        total += blocks * block_size * group.bytes_per_token + group.state_bytes
    return total
