"""Storage formats of KV cache elements, by the names that engines use for kv_cache_dtype."""

from typing import NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ceil_div


class KVFormat(NamedTuple):
    """A storage format: bits of an element, plus scale_bytes for every group of group_size elements
    of a head.

    group_size 0: the whole head is one group; scale_bytes 0: one scale per tensor, which is not
    counted.
    """

    bits: int
    scale_bytes: int = 0
    group_size: int = 0

    def num_bytes(self, elements: int, heads: int) -> int:
        """Bytes of `heads` vectors of `elements` elements each."""
        groups = ceil_div(elements, self.group_size or elements)
        return heads * (ceil_div(elements * self.bits, 8) + groups * self.scale_bytes)


FORMATS: dict[str, KVFormat] = {
    "fp32": KVFormat(32),
    "fp16": KVFormat(16),
    "bf16": KVFormat(16),
    "fp8": KVFormat(8),  # one scale per tensor
    "int8": KVFormat(8, scale_bytes=4),  # a float16 scale and zero point per token and head
    "int4": KVFormat(4, scale_bytes=4, group_size=64),  # the same per 64 elements
    # vLLM's: a float32 scale beside each head's data, or an 8-bit one for each 16 elements.
    "fp8_per_token_head": KVFormat(8, scale_bytes=4),
    "int8_per_token_head": KVFormat(8, scale_bytes=4),
    "int4_per_token_head": KVFormat(4, scale_bytes=4),
    "nvfp4": KVFormat(4, scale_bytes=1, group_size=16),
    # ggml's: a float16 scale, with _1 a minimum too, for each 32 elements (llama.cpp, Ollama).
    "q8_0": KVFormat(8, scale_bytes=2, group_size=32),
    "q5_1": KVFormat(5, scale_bytes=4, group_size=32),
    "q5_0": KVFormat(5, scale_bytes=2, group_size=32),
    "q4_1": KVFormat(4, scale_bytes=4, group_size=32),
    "q4_0": KVFormat(4, scale_bytes=2, group_size=32),
    "iq4_nl": KVFormat(4, scale_bytes=2, group_size=32),
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
    "fp8_inc": "fp8",
    "nvfp4_4over6": "nvfp4",
    "fp4_e2m1": "nvfp4",  # SGLang's
}
# MLA's own: the latent in 8 bits with a float32 scale per 128 elements and the rotated key in bf16,
# or the latent in 4 bits with an 8-bit scale per 16 and the rotated key in 8.
FP8_DS_MLA, NVFP4_DS_MLA = "fp8_ds_mla", "nvfp4_ds_mla"
DS_MLA = (FP8_DS_MLA, NVFP4_DS_MLA)
KV_CACHE_DTYPES = ("auto", *FORMATS, *DS_MLA, *SYNONYMS)


def kv_format(name: str, model_dtype: str) -> KVFormat | None:
    """The format of this name ("auto": the model's dtype); None for formats that only MLA has."""
    name = SYNONYMS.get(name, name)
    if name == "auto":
        name = SYNONYMS.get(model_dtype, model_dtype)
    if name in DS_MLA:
        return None
    if name not in FORMATS:
        raise InputError(
            "unknown KV cache dtype",
            where="kv_cache_dtype",
            value=repr(name),
            remedy=f"known: {', '.join(KV_CACHE_DTYPES)}",
        )
    return FORMATS[name]


def with_scales(
    storage: KVFormat | None, name: str, scale_group_size: int | None, scale_bytes: int | None
) -> KVFormat | None:
    """The format with scales given by the user instead of its own."""
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
