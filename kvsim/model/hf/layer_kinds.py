"""The kind of each layer: listed in the file, given as a pattern, or derived from a rule."""

from kvsim.model.hf.keys import Keys
from kvsim.plumbing.errors import InputError

FULL, SLIDING, LINEAR, CONV = "full_attention", "sliding_attention", "linear_attention", "conv"
MOST_LAYERS = 10_000
MOE, MLP, BOTH = "moe", "mlp", "hybrid"
KNOWN_LAYERS = (FULL, SLIDING, LINEAR, CONV, MOE, MLP, BOTH)
# The engine keeps every token of a chunk of local attention, and a chosen subset is of all tokens.
SYNONYMS = {
    "attention": FULL,
    "chunked_attention": FULL,
    "indexed_attention": FULL,
    "deepseek_sparse_attention": FULL,
    "minimax_m3_sparse": FULL,
    "mamba": LINEAR,
    "mamba2": LINEAR,
    "short_conv": CONV,
}
# Nemotron-H draws its layers.
PATTERN = {"M": LINEAR, "*": FULL, "-": MLP, "E": MOE}


def layer_kinds(keys: Keys) -> list[str]:
    """The kind of each layer, one of KNOWN_LAYERS."""
    if keys.architecture.compressed:
        return [FULL] * layer_count(keys)
    drawn = keys.get("hybrid_override_pattern", default=None)
    if drawn is not None:
        return _known(keys, [PATTERN.get(mark, mark) for mark in str(drawn)], "the pattern")
    written = keys.get("layer_types", "layers_block_type", default=None)
    if written is not None:
        return _known(keys, list(written), "layer_types")
    count = layer_count(keys)
    if keys.kind == "falcon_h1":
        return [BOTH] * count
    if keys.architecture.linear != "none":
        return [_placed(keys, index) for index in range(count)]
    if keys.kind.startswith("lfm2"):
        attention = keys.get("full_attn_idxs")
        return [FULL if index in attention else CONV for index in range(count)]
    return [SLIDING if _slides(keys, index, count) else FULL for index in range(count)]


def layer_count(keys: Keys) -> int:
    """Number of decoder layers, as the file counts them."""
    names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    listed = keys.get("layers_block_type", default=None)
    default = len(listed) if listed else None  # newer files of Nemotron-H list them alone
    return keys.integer(*names, default=default, most=MOST_LAYERS)


def window(keys: Keys) -> int | None:
    """The sliding window in tokens; None if it is as long as the longest sequence."""
    written = keys.get("sliding_window", default=None)
    longest = keys.get("max_position_embeddings", default=None)
    if written is None or (longest is not None and written >= longest):
        return None
    return keys.integer("sliding_window")


def chunk(keys: Keys, index: int) -> int | None:
    """Tokens in a chunk of local attention in layer `index`; None: full attention.

    Every fourth layer has full attention without rotated positions; all others are local (vLLM's
    llama4.py).
    """
    if keys.kind != "llama4_text" or keys.get("attention_chunk_size", default=None) is None:
        return None
    rotated = keys.get("no_rope_layers", default=None)  # 1: rotated
    if isinstance(rotated, list) and index < len(rotated):
        local = bool(rotated[index])
    else:
        local = (index + 1) % keys.integer("no_rope_layer_interval", default=4) != 0
    return keys.integer("attention_chunk_size") if local else None


def _known(keys: Keys, written: list[str], where: str) -> list[str]:
    kinds = [SYNONYMS.get(str(kind), str(kind)) for kind in written]
    unknown = next((repr(kind) for kind in kinds if kind not in KNOWN_LAYERS), None)
    # A drawn pattern is the count; Zamba's and Nemotron's files may keep another.
    count = len(kinds) if where == "the pattern" else layer_count(keys)
    if unknown is not None or len(kinds) != count:
        raise InputError(
            "layer types are not understood" if unknown else "one layer type a layer is needed",
            where=f"{keys.where}: {where}",
            value=unknown or len(kinds),
            limit=", ".join(KNOWN_LAYERS) if unknown else count,
        )
    return kinds


def _placed(keys: Keys, index: int) -> str:
    """Layer kinds by a rule: Jamba has a period and offset, Bamba and Kimi have indices, Qwen an
    interval; Mamba has no attention.
    """
    listed = keys.inner("linear_attn_config").get("full_attn_layers", default=None)
    if listed is not None:  # counted from 1
        return FULL if index + 1 in listed else LINEAR
    if keys.get("attn_layer_indices", default=None) is not None:
        return FULL if index in keys.get("attn_layer_indices") else LINEAR
    if keys.get("attn_layer_period", default=None) is not None:
        offset = keys.count("attn_layer_offset")
        return FULL if index % keys.integer("attn_layer_period") == offset else LINEAR
    if keys.get("full_attention_interval", default=None) is not None:
        last = (index + 1) % keys.integer("full_attention_interval") == 0
        return FULL if last else LINEAR
    if keys.kind in ("mamba", "mamba2", "falcon_mamba"):
        return LINEAR
    raise InputError(
        "where the attention layers are is not said", where=keys.where, value=keys.kind
    )


def _slides(keys: Keys, index: int, count: int) -> bool:
    if window(keys) is None:
        return False
    rule = keys.architecture.windows
    if rule == "every":
        return True
    if rule == "from_layer":  # Qwen windows the layers from max_window_layers on, if asked to
        first = keys.count("max_window_layers") or count
        return keys.flag("use_sliding_window") and index >= first
    drawn = keys.get("sliding_window_pattern", default=None)
    if isinstance(drawn, str):  # EXAONE 4 draws it, and its last layer sees everything
        return index + 1 < count and drawn[index % len(drawn)] == "L" if drawn else False
    pattern = keys.count("sliding_window_pattern", "_sliding_window_pattern")
    pattern = 2 if rule == "first_of_two" else pattern
    return pattern > 0 and (index + 1) % pattern != 0
