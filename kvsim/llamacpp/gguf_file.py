"""Reads a model's layers from the header of its GGUF file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.llamacpp.sizes import KVLayer, KVShape
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.extras import need

# Architectures without a pattern: of each group of this many layers the last has full attention.
PERIODS = {
    **dict.fromkeys(("gemma2", "gpt-oss"), 2),
    **dict.fromkeys(("cohere2", "exaone4", "olmo2", "afmoe", "llama4"), 4),
    "gemma3n": 5,
    "gemma3": 6,
    "plamo3": 8,
}
MOST_LAYERS, LARGEST = 10_000, 1 << 32  # of a header's numbers
DENSE_FIRST = {"smallthinker": 4, "laguna": 4, "cohere2moe": 4}  # the first of each group is full


class GgufModel(NamedTuple):
    """The fields of a model that determine the size of its KV cache.

    trained_tokens: trained context length. layers: all layers, None for one without KV. window:
    tokens of the sliding window; 0: none.
    """

    name: str
    architecture: str
    trained_tokens: int
    layers: tuple[KVLayer | None, ...]
    window: int

    @property
    def shape(self) -> KVShape:
        """The layers with KV."""
        return KVShape(tuple(layer for layer in self.layers if layer is not None), self.window)


def read_gguf(path: Path) -> GgufModel:
    """Read the header of a GGUF file. InputError names the key at fault."""
    need("gguf", where="MODEL", otherwise="name the model by its config.json")
    import numpy as np
    from gguf import GGUFReader

    if not path.is_file():
        raise InputError("no such file", where=str(path))

    class BoundedReader(GGUFReader):
        """Reads nothing beyond the end of the file: lengths in damaged files have no other
        limit.
        """

        def _get(self, offset: Any, dtype: Any, count: Any = 1, *order: Any, **more: Any) -> Any:
            item_bytes = np.dtype(dtype).itemsize
            if int(offset) + item_bytes * int(count) > len(self.data):
                raise ValueError(f"{int(count):,} x {item_bytes} bytes at byte {int(offset):,}")
            return super()._get(offset, dtype, count, *order, **more)

    try:
        reader = BoundedReader(path)
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise InputError(f"no GGUF file: {error}", where=str(path)) from None
    return model_of({key: field.contents() for key, field in reader.fields.items()}, str(path))


def model_of(keys: Mapping[str, Any], where: str) -> GgufModel:
    """The model that a header's `keys` describe. where: the file, for errors."""
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

    def number(name: str, default: int | None = None) -> int:
        return _whole(key(name, default), f"{where}: {architecture}.{name}")

    def of_layers(name: str, value: Any, count: int) -> list[int]:
        return _per_layer(value, count, f"{where}: {architecture}.{name}")

    count, heads = number("block_count"), key("attention.head_count")
    if not 1 <= count <= MOST_LAYERS:
        raise InputError(
            "no number of layers",
            where=f"{where}: {architecture}.block_count",
            value=count,
            limit=f"1 to {MOST_LAYERS:,}",
        )
    query_heads = of_layers("attention.head_count", heads, count)
    kv_heads = of_layers("attention.head_count_kv", key("attention.head_count_kv", heads), count)
    width = number("embedding_length") // max(1, query_heads[0])
    k, v = number("attention.key_length", width), number("attention.value_length", width)
    k_window = number("attention.key_length_swa", k)
    v_window = number("attention.value_length_swa", v)
    latent = number("attention.kv_lora_rank", 0)
    window = number("attention.sliding_window", 0)
    windowed = [False] * count
    if window:
        name = f"{architecture}.attention.sliding_window_pattern"
        windowed = _windowed(architecture, keys.get(name), count, f"{where}: {name}")
    kept = count - number("attention.shared_kv_layers", 0)
    layers: list[KVLayer | None] = []
    for at in range(count):
        num = kv_heads[at]
        if at >= kept or not num:
            layers.append(None)
        elif latent and f"{architecture}.attention.key_length_mla" in keys:
            layers.append(KVLayer(num * k, 0, windowed[at]))
        elif windowed[at]:
            layers.append(KVLayer(num * k_window, num * v_window, windowed=True))
        else:
            layers.append(KVLayer(num * k, num * v))
    name = str(keys.get("general.name", architecture))
    return GgufModel(name, architecture, number("context_length", 0), tuple(layers), window)


def _required(keys: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in keys:
        raise InputError("the header lacks a key", where=where, value=name)
    return keys[name]


def _whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < LARGEST:
        limit = f"a whole number from 0 to {LARGEST - 1:,}"
        raise InputError("a wrong number", where=where, value=value, limit=limit)
    return value


def _per_layer(value: Any, count: int, where: str) -> list[int]:
    """`value` as one number for each of `count` layers; it is a list, or one number for all."""
    if not isinstance(value, list):
        return [_whole(value, where)] * count
    _of_each_layer(value, count, where)
    return [_whole(each, where) for each in value]


def _of_each_layer(values: list[Any], count: int, where: str) -> None:
    if len(values) != count:
        raise InputError(
            "not a value for each layer", where=where, value=len(values), limit=f"{count} values"
        )


def _windowed(architecture: str, pattern: Any, count: int, where: str) -> list[bool]:
    """Whether each layer has a sliding window. pattern: a flag for each layer, or a period in
    layers.
    """
    if isinstance(pattern, list):
        _of_each_layer(pattern, count, where)
        return [bool(flag) for flag in pattern]
    given = None if pattern is None else _whole(pattern, where)
    if architecture in DENSE_FIRST:
        period = given or DENSE_FIRST[architecture]
        return [at % period > 0 for at in range(count)]
    period = given or PERIODS.get(architecture, 1)
    if period == 1:  # every layer, as in phi3 and in older mistral
        return [True] * count
    return [at % period < period - 1 for at in range(count)]
