"""Names in the kernel tables of the formats of a model's weights and KV cache."""

from kvsim.model import Model

PLAIN = {"bfloat16": ("bfloat16",), "float16": ("bfloat16",)}  # tensor cores: the same speed
BLOCKS = ("fp8_block", "fp8")
LINEAR: dict[str, tuple[str, ...]] = {
    "int8": ("int8_wo", "fp8"),
    "nvfp4": ("nvfp4",),
    "int4": ("int4_wo", "bfloat16"),
}
EXPERTS: dict[str, tuple[str, ...]] = {
    "int8": ("int8_wo", *BLOCKS),
    "nvfp4": ("nvfp4",),
    "int4": ("int4_wo",),
    "mxfp4": ("w4a8_mxfp4_mxfp8", "w4a16_mxfp4"),
}


def plain_dtypes(model: Model) -> tuple[str, ...]:
    """Table dtypes of unquantised kernels; empty if none were measured."""
    return PLAIN.get(model.torch_dtype, (model.torch_dtype,))


def linear_dtypes(model: Model) -> tuple[str, ...]:
    """Dtypes of matrices; published checkpoints of experts in fp8 are scaled by blocks."""
    form = model.weight_format
    if form.linear_bits >= 16:
        return plain_dtypes(model)
    if form.method in LINEAR:
        return LINEAR[form.method]
    if form.linear_bits < 6:
        return LINEAR["int4"]
    return BLOCKS if model.is_sparse else BLOCKS[::-1]


def mixer_dtypes(model: Model) -> tuple[str, ...]:
    """Dtypes of the matrices of attention and recurrence."""
    bits = model.weight_format.mixer_bits
    return plain_dtypes(model) if bits is not None and bits >= 16 else linear_dtypes(model)


def expert_dtypes(model: Model) -> tuple[str, ...]:
    """Dtypes of routed experts."""
    form = model.weight_format
    if form.expert_bits >= 16:
        return plain_dtypes(model)
    if form.method in EXPERTS:
        return EXPERTS[form.method]
    return EXPERTS["int4"] if form.expert_bits < 6 else BLOCKS


def cache_dtypes(token_bytes: float, elements: int) -> tuple[str, ...]:
    """Cache dtypes that fit `token_bytes` bytes for `elements` elements a token, the likeliest
    first.
    """
    return ("fp8", "bfloat16") if token_bytes < 1.5 * elements else ("bfloat16", "fp8")
