"""The attention of one layer, of whichever kind a config.json describes."""

from kvsim.model.hf.architecture import EXPANDED_KINDS
from kvsim.model.hf.blocks import block_of
from kvsim.model.hf.compressed import compressed_attention
from kvsim.model.hf.keys import Keys
from kvsim.model.hf.layer_kinds import SLIDING, chunk, layer_count, window
from kvsim.model.layers import Attention, CompressedAttention, LatentAttention
from kvsim.plumbing.errors import InputError

Attending = Attention | LatentAttention | CompressedAttention


def attention(keys: Keys, kind: str, index: int) -> Attending:
    """The attention mixer of layer `index`. kind: "full_attention" or "sliding_attention"."""
    if keys.architecture.compressed:
        return compressed_attention(keys, index)
    if keys.get("kv_lora_rank", default=None) is not None:
        return _latent(keys, _picks_tokens(keys, index))
    sliding = kind == SLIDING
    if sliding and keys.get("sliding_window", default=None) is None:
        raise InputError("sliding layers need a sliding_window", where=keys.where)
    heads = _heads(keys, index, sliding=sliding)
    head_dim = keys.integer("head_dim", "kv_channels", default=max(1, keys.hidden // heads))
    kv_heads = _kv_heads(keys, heads, index)
    value_dim = keys.get("v_head_dim", default=None)
    if keys.kind.startswith("mimo_v2") and sliding:
        twice = 2 if keys.kind == "mimo_v2_flash" else 1  # as transformers' class has them
        kv_heads = keys.integer("swa_num_key_value_heads", default=twice * kv_heads)
        head_dim = keys.integer("swa_head_dim", default=head_dim)
        value_dim = keys.get("swa_v_head_dim", default=value_dim)
    if keys.kind == "zamba2":
        return Attention(heads, kv_heads, 2 * keys.hidden // heads, shares_weights=True)
    if keys.kind in ("gemma4_text", "gemma4_unified_text") and not sliding:
        head_dim = keys.integer("global_head_dim")
        if keys.flag("attention_k_eq_v"):
            kv_heads = keys.integer("num_global_key_value_heads", default=kv_heads)
    indexer = _indexer(keys, index)
    return Attention(
        heads,
        kv_heads,
        head_dim,
        window(keys) if sliding else None,
        output_gate=keys.architecture.output_gate,
        v_head_dim=value_dim,
        chunk_tokens=chunk(keys, index),
        shares_cache=index >= layer_count(keys) - keys.count("num_kv_shared_layers"),
        index_heads=indexer[0],
        index_head_dim=indexer[1],
    )


def _indexer(keys: Keys, index: int) -> tuple[int, int]:
    """Query heads and width of the indexer of a layer with keys and values (MiniMax-M3); 0: none.

    transformers writes its layers as "minimax_m3_sparse", the published files list them.
    """
    if not keys.kind.startswith("minimax_m3"):
        return 0, 0
    table = keys.inner("sparse_attention_config")
    picks = table.get("sparse_attention_freq", default=None)
    if picks is None:
        kinds = keys.get("layer_types", default=[])
        picks = [kind == "minimax_m3_sparse" for kind in kinds]
    if not (index < len(picks) and picks[index]):
        return 0, 0
    return (
        table.integer("sparse_num_index_heads", default=keys.count("index_n_heads") or 4),
        table.integer("sparse_index_dim", default=keys.count("index_head_dim") or 128),
    )


def _heads(keys: Keys, index: int, *, sliding: bool) -> int:
    """Number of query heads of a layer: Laguna has a list, and windows of Step and MiMo may have
    another number.
    """
    listed = keys.get("num_attention_heads_per_layer", default=None)
    if isinstance(listed, list) and index < len(listed):
        return int(listed[index])
    if sliding:
        other = keys.inner("attention_other_setting")
        names = ("num_sliding_attention_heads", "swa_num_attention_heads")
        heads = other.integer("num_attention_heads", default=keys.heads)
        return keys.integer(*names, default=heads)
    return keys.heads


def _picks_tokens(keys: Keys, index: int) -> bool:
    """Whether layer `index` has its own sparse-attention indexer; other layers reuse the tokens
    that an earlier layer picked.
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
        expanded=keys.kind in EXPANDED_KINDS,
        output_gate=keys.architecture.output_gate,
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
    if keys.get("block_configs", default=None):  # Nemotron-NAS: query heads a KV head
        return heads // int(block_of(keys, index, "attention")["n_heads_in_group"])
    names = (
        *("num_key_value_heads", "num_kv_heads", "multi_query_group_num"),
        "num_attention_groups",
    )
    return keys.integer(*names, default=heads, index=index)
