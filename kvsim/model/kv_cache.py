"""The KV cache of a model, in bytes: formats, scales, tensor parallelism.

A token costs 2 * H_kv * D elements in an attention layer and one latent plus one rotated key in an
MLA layer, where the latent is replicated on every GPU.
"""

from typing import TYPE_CHECKING, NamedTuple

from kvsim.layout import GroupKind, KVGroup, KVLayout
from kvsim.model.layers import Attention, LatentAttention, Mixer, Recurrence
from kvsim.model.weights import DTYPE_BYTES
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ceil_div

if TYPE_CHECKING:
    from kvsim.model.model import Model


class KVFormat(NamedTuple):
    """How elements are stored: bits each, and scale_bytes for every group of group_size elements
    of a head (0: the whole head; scale_bytes 0: one scale per tensor, which costs nothing).
    """

    bits: int
    scale_bytes: int = 0
    group_size: int = 0

    def num_bytes(self, elements: int, heads: int) -> int:
        """Bytes of `heads` vectors of `elements` elements."""
        groups = ceil_div(elements, self.group_size or elements)
        return heads * (ceil_div(elements * self.bits, 8) + groups * self.scale_bytes)


FORMATS: dict[str, KVFormat] = {
    "fp32": KVFormat(32),
    "fp16": KVFormat(16),
    "bf16": KVFormat(16),
    "fp8": KVFormat(8),  # one scale per tensor
    "int8": KVFormat(8, scale_bytes=4),  # a float16 scale and zero point per token and head
    "int4": KVFormat(4, scale_bytes=4, group_size=64),  # the same per 64 elements
}
SYNONYMS = {
    "float32": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}
FP8_DS_MLA = "fp8_ds_mla"
KV_CACHE_DTYPES = ("auto", *FORMATS, FP8_DS_MLA, *SYNONYMS)


def layout(
    model: "Model",
    kv_cache_dtype: str,
    tensor_parallel_size: int,
    scale_group_size: int | None,
    scale_bytes: int | None,
) -> KVLayout:
    """The layout on one GPU; scale_group_size and scale_bytes replace the format's own.

    Layers that keep the same state form a group; groups stand in the order of their first layer.
    Raises InputError on an unknown dtype, one that does not suit the model, or an impossible split.
    """
    model.check_tensor_parallel(tensor_parallel_size)
    storage = _format(model, kv_cache_dtype, scale_group_size, scale_bytes)
    counts: dict[Mixer, int] = {}
    for layer in model.layers:
        counts[layer.mixer] = counts.get(layer.mixer, 0) + 1
    groups: list[KVGroup] = []
    for mixer, layers in counts.items():
        group = _group(model, mixer, layers, storage, tensor_parallel_size)
        same = next(
            (i for i, g in enumerate(groups) if (g.kind, g.window_tokens) == group[::3]), None
        )
        if same is None:
            groups.append(KVGroup(*group))
        else:
            before = groups[same]
            groups[same] = KVGroup(
                before.kind,
                before.layers + layers,
                before.bytes_per_token + group[2],
                before.window_tokens,
                before.state_bytes + group[4],
            )
    return KVLayout(tuple(groups))


def _group(
    model: "Model", mixer: Mixer, layers: int, storage: KVFormat | None, tp: int
) -> tuple[GroupKind, int, int, int | None, int]:
    """The fields of a KVGroup of `layers` layers with this mixer; storage None: fp8_ds_mla."""
    if isinstance(mixer, Recurrence):
        conv = mixer.conv_elements // tp * DTYPE_BYTES[model.torch_dtype]
        state = conv + mixer.ssm_elements // tp * DTYPE_BYTES[mixer.ssm_dtype]
        return "recurrent", layers, 0, None, layers * state
    if isinstance(mixer, LatentAttention):
        latent, rope = mixer.kv_lora_rank, mixer.rope_head_dim
        if storage is None:  # fp8 latent, a float32 scale per 128 elements, the key in bf16
            token = latent + ceil_div(latent, 128) * 4 + rope * 2
        else:
            token = storage.num_bytes(latent + rope, 1)
        return "mla", layers, layers * token, None, 0
    assert storage is not None
    token = 2 * storage.num_bytes(mixer.head_dim, mixer.kv_heads_on(tp))
    kind: GroupKind = "full" if mixer.window_tokens is None else "sliding"
    return kind, layers, layers * token, mixer.window_tokens, 0


def _format(
    model: "Model", name: str, scale_group_size: int | None, scale_bytes: int | None
) -> KVFormat | None:
    name = SYNONYMS.get(name, name)
    if name == "auto":
        name = SYNONYMS.get(model.torch_dtype, model.torch_dtype)
    if name == FP8_DS_MLA:
        if any(isinstance(layer.mixer, Attention) for layer in model.layers) or not any(
            isinstance(layer.mixer, LatentAttention) for layer in model.layers
        ):
            raise InputError(
                "fp8_ds_mla stores MLA's latent and this model has none",
                where="kv_cache_dtype",
                value=model.name,
                remedy="use fp8",
            )
        storage = None
    elif name in FORMATS:
        storage = FORMATS[name]
    else:
        raise InputError(
            "unknown KV cache dtype",
            where="kv_cache_dtype",
            value=repr(name),
            remedy=f"known: {', '.join(KV_CACHE_DTYPES)}",
        )
    if scale_group_size is None and scale_bytes is None:
        return storage
    if storage is None or storage.bits > 8:
        raise InputError(
            "scales belong to quantised KV caches",
            where="kv_scale_group_size" if scale_group_size is not None else "kv_scale_bytes",
            value=name,
            limit="fp8, int8 or int4",
        )
    return KVFormat(
        storage.bits,
        (storage.scale_bytes or 4) if scale_bytes is None else scale_bytes,
        storage.group_size if scale_group_size is None else scale_group_size,
    )
