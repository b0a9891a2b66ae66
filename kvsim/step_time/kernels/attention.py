"""Kernels of attention with keys and values (not MLA): full, sliding-window or chunked."""

from kvsim.model import Attention
from kvsim.step_time.kernels.dtypes import cache_dtypes, mixer_dtypes
from kvsim.step_time.kernels.heads import heads_sheet
from kvsim.step_time.kernels.parts import Kernels, LayerKernels, LocalKernels
from kvsim.step_time.kernels.tables import KernelFamily, KernelLine, Shape, Work
from kvsim.step_time.kernels.work import Roofs, bits_of

ALIKE = (2, 3)  # head_dim and window: what a kernel is compiled for
ARITHMETIC = ("bfloat16", "fp8")


def attention_parts(
    kernels: Kernels, mixer: Attention, count: int, token_bytes: float
) -> LayerKernels:
    """Kernels of `count` attention layers on one GPU; token_bytes: KV bytes per token and layer."""
    tp, hidden = kernels.split.tp, kernels.model.hidden_size
    heads, kept = mixer.heads // tp, mixer.kv_heads_on(tp)
    elements = kept * (mixer.head_dim + mixer.value_dim)
    stored = cache_dtypes(token_bytes, elements)
    shape = (heads, kept, mixer.head_dim, mixer.window_tokens or 0)
    parts = LayerKernels()
    if not mixer.shares_weights:
        dtypes = mixer_dtypes(kernels.model)
        parts.tokens += [
            (count, kernels.gemm(mixer.width_on(tp), hidden, dtypes)),
            (count, kernels.gemm(hidden, heads * mixer.value_dim, dtypes)),
        ]
    roofs = Roofs(kernels.device, bits_of(stored[0]))
    family = kernels.tables.required("decode_attention", stored)
    decode = _windowed(family, shape, roofs.decode, batched=True)
    pairs = [f"{arithmetic}/{cache}" for cache in stored for arithmetic in ARITHMETIC]
    family = kernels.tables.required("prefill_attention", pairs)
    prefill = _windowed(family, shape, roofs.prefill, batched=False)
    if mixer.chunk_tokens is not None:
        parts.local.append(LocalKernels(count, mixer.chunk_tokens, decode, prefill))
        return parts
    parts.decode.append((count, decode))
    parts.prefill.append((count, prefill, True))
    return parts


def _windowed(
    family: KernelFamily, shape: Shape, work: Work, batched: bool
) -> dict[int, KernelLine]:
    """Measured curves of this window, or else of full attention. For a head_dim that was not
    measured, the curves of the nearest one. batched: see `heads_sheet`.
    """
    for equal_at in (ALIKE, (2,), ()):
        lines = heads_sheet(family, shape, work, equal_at, batched)
        if lines:
            return lines
    raise AssertionError("a family has a shape")
