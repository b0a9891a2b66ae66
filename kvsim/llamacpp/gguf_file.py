"""The layers of a model as the header of its GGUF file describes them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.llamacpp.sizes import KVLayer, KVShape
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.extras import need

# Of architectures that name no pattern: every so many layers the last of each group is full.
PERIODS = {
    **dict.fromkeys(("gemma2", "gpt-oss"), 2),
    **dict.fromkeys(("cohere2", "exaone4", "olmo2", "afmoe", "llama4"), 4),
    "gemma3n": 5,
    "gemma3": 6,
    "plamo3": 8,
}
DENSE_FIRST = {"smallthinker": 4, "laguna": 4, "cohere2moe": 4}  # the first of each group is full


class GgufModel(NamedTuple):
    """The fields of a model that determine the sizes of its cache.

    layers: all of them, None for one without KV.
    """

    name: str
    architecture: str
    trained_tokens: int
    layers: tuple[KVLayer | None, ...]
    window: int

    @property
    def shape(self) -> KVShape:
        """The layers that keep KV."""
        return KVShape(tuple(layer for layer in self.layers if layer is not None), self.window)


def read_gguf(path: Path) -> GgufModel:
    """The model in a GGUF file; only its header is looked at. InputError names the key at fault."""
    need("gguf", where="MODEL", otherwise="name the model by its config.json")
    from gguf import GGUFReader

    if not path.is_file():
        raise InputError("no such file", where=str(path))
    try:
        reader = GGUFReader(path)
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise InputError(f"no GGUF file: {error}", where=str(path)) from None
    return model_of({key: field.contents() for key, field in reader.fields.items()}, str(path))


def model_of(keys: Mapping[str, Any], where: str) -> GgufModel:
    """The model of these keys of a header."""
    architecture = str(_required(keys, "general.architecture", where))

    def key(name: str, default: Any = None) -> Any:
        full = f"{architecture}.{name}"
        return _required(keys, full, where) if default is None else keys.get(full, default)

    if any(name.startswith(f"{architecture}.ssm.") for name in keys):
        raise InputError(
            "recurrent layers are not sized",
            where=where,
            value=architecture,
            remedy="size the model by its config.json",
        )
    count, heads = int(key("block_count")), key("attention.head_count")
    kv_heads = _per_layer(key("attention.head_count_kv", heads), count)
    first_heads = heads[0] if isinstance(heads, list) else heads
    width = int(key("embedding_length")) // max(1, int(first_heads))
    k, v = int(key("attention.key_length", width)), int(key("attention.value_length", width))
    k_window = int(key("attention.key_length_swa", k))
    v_window = int(key("attention.value_length_swa", v))
    latent = int(key("attention.kv_lora_rank", 0))
    window = int(key("attention.sliding_window", 0))
    windowed = _windowed(architecture, keys, count) if window else [False] * count
    kept = count - int(key("attention.shared_kv_layers", 0))
    layers: list[KVLayer | None] = []
    for at in range(count):
        num = int(kv_heads[at])
        if at >= kept or not num:
            layers.append(None)
        elif latent and f"{architecture}.attention.key_length_mla" in keys:
            layers.append(KVLayer(num * k, 0, windowed[at]))
        elif windowed[at]:
            layers.append(KVLayer(num * k_window, num * v_window, windowed=True))
        else:
            layers.append(KVLayer(num * k, num * v))
    name = str(keys.get("general.name", architecture))
    return GgufModel(name, architecture, int(key("context_length", 0)), tuple(layers), window)


def _required(keys: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in keys:
        raise InputError("the header lacks a key", where=where, value=name)
    return keys[name]


def _per_layer(value: Any, count: int) -> list[Any]:
    """One number for each layer."""
    return list(value) if isinstance(value, list) else [value] * count


def _windowed(architecture: str, keys: Mapping[str, Any], count: int) -> list[bool]:
    """Whether each layer has a window."""
    pattern = keys.get(f"{architecture}.attention.sliding_window_pattern")
    if isinstance(pattern, list):
        return [bool(flag) for flag in pattern]
    if architecture in DENSE_FIRST:
        period = int(pattern or DENSE_FIRST[architecture])
        return [at % period > 0 for at in range(count)]
    period = int(pattern or PERIODS.get(architecture, 1))
    if period == 1:  # every layer, as in phi3 and in older mistral
        return [True] * count
    return [at % period < period - 1 for at in range(count)]
