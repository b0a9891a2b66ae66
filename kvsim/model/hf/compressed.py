"""DeepSeek-V4's attention: which layers compress, and what its hyper-connections add.

Source: its report and the configuration class of transformers 5.23. `compress_ratios` lists a ratio
a layer (one more for the next-token module); newer files name `layer_types` instead. Without
either, two layers of 128 to one, then 128 and 4 to one alternate.
"""

from kvsim.model.hf.keys import Keys
from kvsim.model.layers import CompressedAttention
from kvsim.plumbing.errors import InputError

NAMED = {
    "sliding_attention": 0,
    "compressed_sparse_attention": 4,
    "heavily_compressed_attention": 128,
}
RATIOS = tuple(NAMED.values())


def compressed_attention(keys: Keys, index: int) -> CompressedAttention:
    """The mixer of layer `index`; InputError for a ratio that no engine serves."""
    ratio = _ratio(keys, index)
    return CompressedAttention(
        heads=keys.heads,
        head_dim=keys.integer("head_dim"),
        rope_head_dim=keys.integer("qk_rope_head_dim"),
        q_lora_rank=keys.integer("q_lora_rank"),
        o_groups=keys.integer("o_groups"),
        o_lora_rank=keys.integer("o_lora_rank"),
        window_tokens=keys.integer("sliding_window"),
        compress_ratio=ratio,
        index_heads=keys.integer("index_n_heads") if ratio == 4 else 0,
        index_head_dim=keys.integer("index_head_dim") if ratio == 4 else 0,
        index_topk=keys.count("index_topk") or None if ratio == 4 else None,
    )


def mixer_extras(keys: Keys, mixer: CompressedAttention) -> int:
    """Norms of queries and keys, sinks, and the connections before and after both parts of a layer.

    These are hc_mult streams of the hidden state, mixed by (2 + hc_mult) * hc_mult rows each time.
    """
    streams = keys.integer("hc_mult")
    rows = (2 + streams) * streams
    connections = 2 * (rows * (streams * keys.hidden + 1) + 3)
    return mixer.q_lora_rank + mixer.head_dim + connections


def head_extras(keys: Keys) -> int:
    """The streams joined before the output head."""
    streams = keys.integer("hc_mult")
    return streams * (streams * keys.hidden + 1) + 1


def _ratio(keys: Keys, index: int) -> int:
    ratios = keys.get("compress_ratios", default=None)
    if ratios is None:
        kinds = keys.get("layer_types", default=None)
        if kinds is None:
            return 4 if index >= 2 and index % 2 else 128
        ratios = [NAMED.get(str(kind), str(kind)) for kind in kinds]
    ratio = ratios[index] if index < len(ratios) else None
    ratio = 0 if ratio == 1 else ratio
    if ratio not in RATIOS:
        raise InputError(
            "one ratio a layer is needed" if ratio is None else "no engine compresses so",
            where=f"{keys.where}: compress_ratios",
            value=len(ratios) if ratio is None else ratio,
            limit=", ".join(str(known) for known in RATIOS),
        )
    return int(ratio)
