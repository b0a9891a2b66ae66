"""The attention of one layer, of whichever kind a config.json describes."""

from kvsim.model.hf.compressed import compressed_attention
from kvsim.model.hf.keys import Keys
from kvsim.model.hf.layer_kinds import SLIDING, chunk, layer_count, window
from kvsim.model.layers import Attention, CompressedAttention, LatentAttention
from kvsim.plumbing.errors import InputError

Attending = Attention | LatentAttention | CompressedAttention


def attention(keys: Keys, kind: str, index: int) -> Attending:
    """The mixer of layer `index`, of kind "full_attention" or "sliding_attention"."""
    if keys.architecture.compressed:
        return compressed_attention(keys, index)
    if keys.get("kv_lora_rank", default=None) is not None:
        return _latent(keys, _picks_tokens(keys, index))
    sliding = kind == SLIDING
    if sliding and keys.get("sliding_window", default=None) is None:
        raise InputError("sliding layers need a sliding_window", where=keys.where)
    heads = keys.heads
    head_dim = keys.integer("head_dim", "kv_channels", default=max(1, keys.hidden // heads))
    kv_heads = _kv_heads(keys, heads, index)
    if keys.kind == "zamba2":
        return Attention(heads, kv_heads, 2 * keys.hidden // heads, shares_weights=True)
    if keys.kind == "gemma4_text" and not sliding:
        head_dim = keys.integer("global_head_dim")
        if keys.flag("attention_k_eq_v"):
            kv_heads = keys.integer("num_global_key_value_heads", default=kv_heads)
    return Attention(
        heads,
        kv_heads,
        head_dim,
        window(keys) if sliding else None,
        output_gate=keys.architecture.output_gate,
        v_head_dim=keys.get("v_head_dim", default=None),
        chunk_tokens=chunk(keys, index),
        shares_cache=index >= layer_count(keys) - keys.count("num_kv_shared_layers"),
    )


def _picks_tokens(keys: Keys, index: int) -> bool:
    """Whether layer `index` has an indexer of its own; the others attend to what an earlier one
    picked.
    """
    listed: list[str] | None = keys.get("indexer_types", default=None)
    if listed is not None:
        return not index < len(listed) or listed[index] != "shared"
    pattern: str | list[str] | None = keys.get("index_topk_pattern", default=None)
    if pattern is not None:
        return not index < len(pattern) or pattern[index] != "S"
    every = keys.count("index_topk_freq") or 1
    first: int = keys.get("index_skip_topk_offset", default=2)
    return max(index - first + 1, 0) % every == 0


def _latent(keys: Keys, picks_tokens: bool) -> LatentAttention:
    return LatentAttention(
        keys.heads,
        keys.get("q_lora_rank", default=None),
        keys.integer("kv_lora_rank"),
        keys.integer("qk_nope_head_dim"),
        keys.integer("qk_rope_head_dim"),
        keys.integer("v_head_dim"),
        keys.count("index_n_heads") if picks_tokens else 0,
        keys.count("index_head_dim") if picks_tokens else 0,
    )


def _kv_heads(keys: Keys, heads: int, index: int) -> int:
    if keys.kind == "falcon":
        if keys.flag("new_decoder_architecture"):
            return keys.integer("num_kv_heads", "n_head_kv", default=heads)
        return 1 if keys.flag("multi_query", default=True) else heads
    if keys.kind == "gpt_bigcode":
        return 1 if keys.flag("multi_query", default=True) else heads
    if keys.kind == "mpt":
        return keys.inner("attn_config").integer("kv_n_heads", default=heads)
    names = ("num_key_value_heads", "num_kv_heads", "multi_query_group_num")
    return keys.integer(*names, default=heads, index=index)
