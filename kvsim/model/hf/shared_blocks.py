"""Zamba 2's attention and feed-forward parts, which its hybrid layers share (arXiv 2411.15242).

A block works on the concatenation of the hidden state and the embedding, twice the width. There are
num_mem_blocks of them, used in rotation. Each hybrid layer adds a projection back into its Mamba
layer and low-rank adapters of its own. These are of the feed-forward part, and of attention where
the file says so.
"""

from kvsim.model.hf.keys import Keys
from kvsim.model.hf.layer_kinds import BOTH, layer_kinds


def shared_blocks(keys: Keys) -> int:
    """Number of parameters of all shared blocks, and of what each hybrid layer adds."""
    hidden, wide = keys.hidden, 2 * keys.hidden
    width = keys.integer("intermediate_size", default=4 * hidden)
    head_dim = wide // keys.heads
    queries = keys.heads * head_dim
    kept = keys.integer("num_key_value_heads", default=keys.heads) * head_dim
    block = wide * (queries + 2 * kept) + queries * hidden + 3 * hidden * width + wide + hidden
    rank = keys.integer("adapter_rank", default=128)
    layer = hidden * hidden + rank * (hidden + 2 * width)
    if keys.flag("use_shared_attention_adapter"):
        layer += 3 * rank * wide + rank * (queries + 2 * kept)
    hybrids = layer_kinds(keys).count(BOTH)
    return keys.integer("num_mem_blocks", default=1) * block + hybrids * layer
