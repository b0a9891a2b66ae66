"""How many sequences of one length fit into an empty pool, by allocator, in closed form.

    max-buffer  capacity // (slots of the longest sequence)
    doubling    capacity // (the smallest initial * 2^k slots that hold the tokens, at most the
                longest sequence's)
    paged       (blocks of the engine's plan - the null block) // (the sequence's blocks, group by
                group, while it decodes)

A contiguous buffer keeps every token in every layer, and pays recurrent states once. Buffers that
grow also live together with their successors while they are copied, which is not counted here.
"""

from typing import NamedTuple

from kvsim.capacity.planning import CachePlan
from kvsim.layout import KVLayout


class SequencesFit(NamedTuple):
    """Numbers of sequences of `tokens` tokens that fit at once, by allocator; bytes: the least that
    one of them needs.
    """

    tokens: int
    bytes: int
    max_buffer: int
    doubling: int
    paged: int


def fit(
    layout: KVLayout,
    plan: CachePlan,
    capacity_bytes: int,
    tokens: int,
    *,
    max_model_len: int,
    initial_tokens: int,
) -> SequencesFit:
    """The numbers for sequences of `tokens` tokens, 1 <= tokens <= max_model_len."""
    token_bytes = layout.bytes_per_token
    state_bytes = sum(group.state_bytes for group in layout.groups)
    slots = initial_tokens
    while slots < tokens:
        slots *= 2
    slots = min(slots, max_model_len)
    usable = max(0, plan.num_blocks(capacity_bytes) - 1)
    return SequencesFit(
        tokens=tokens,
        bytes=layout.sequence_bytes(tokens),
        max_buffer=capacity_bytes // (token_bytes * max_model_len + state_bytes),
        doubling=capacity_bytes // (token_bytes * slots + state_bytes),
        paged=usable // plan.held_blocks(tokens),
    )
