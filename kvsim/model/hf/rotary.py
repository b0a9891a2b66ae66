"""The tables of cosines and sines that an engine keeps, one row a position.

vLLM makes one for each way positions are rotated (model_executor/layers/rotary_embedding): Gemma 3
has one for windows and one, stretched by its factor, for the layers that see everything.
"""

from kvsim.model.hf.keys import Keys

# Architectures that learn their positions or have none.
UNROTATED = ("opt", "gpt2", "gpt_bigcode", "bloom", "mpt", "jamba", "nemotron_h", "kimi_linear")


def rotary_elements(keys: Keys, longest: int) -> int:
    """Total elements of all rotary tables. longest: longest sequence in positions, rope scaling
    included.
    """
    rows = longest
    if keys.kind == "gemma3_text":
        factor = keys.inner("rope_scaling").get("factor", default=1)
        rows += int(longest * float(factor))
    return rows * _rotated(keys)


def has_mrope(keys: Keys) -> bool:
    """Whether the model uses M-RoPE: a position is three numbers, for time, height and width in an
    image or a video.
    """
    tables = (keys.inner("rope_scaling"), keys.inner("rope_parameters"))
    return any(table.get("mrope_section", default=None) is not None for table in tables)


def _rotated(keys: Keys) -> int:
    """Number of elements of one head that are rotated by the position."""
    if keys.kind in UNROTATED or keys.get("num_attention_heads", "n_head", default=None) is None:
        return 0
    if keys.get("qk_rope_head_dim", default=None) is not None:
        return keys.integer("qk_rope_head_dim")
    head_dim = keys.integer("head_dim", "kv_channels", default=max(1, keys.hidden // keys.heads))
    nested = keys.inner("rope_parameters").get("partial_rotary_factor", default=None)
    share = keys.get("partial_rotary_factor", default=nested)
    return int(head_dim * (1.0 if share is None else float(share)))
