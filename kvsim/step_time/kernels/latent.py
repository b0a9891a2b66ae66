"""Kernels of attention over a latent (MLA): of all tokens, or of those that an indexer picks."""

from kvsim.model import LatentAttention
from kvsim.step_time.kernels.dtypes import cache_dtypes, mixer_dtypes, plain_dtypes
from kvsim.step_time.kernels.parts import Cost, Kernels, LayerKernels
from kvsim.step_time.kernels.work import Roofs

INDEXED = {192: "GlmMoeDsaForCausalLM"}  # by nope_head_dim; DeepSeek-V3.2's is 128
INDEXED_ELSE = "DeepseekV32ForCausalLM"


def latent_parts(
    kernels: Kernels, mixer: LatentAttention, count: int, token_bytes: float
) -> LayerKernels:
    """Kernels of `count` MLA layers on one GPU; token_bytes: KV bytes per token and layer."""
    elements = mixer.kv_lora_rank + mixer.rope_head_dim
    index = mixer.index_head_dim + 4 * (mixer.index_head_dim > 0)
    caches = cache_dtypes(token_bytes - index, elements)
    prefix = ""
    kind = "mla"
    if mixer.index_heads:
        prefix = f"{INDEXED.get(mixer.nope_head_dim, INDEXED_ELSE)}/"
        kind = "dsa"
    formats = [*mixer_dtypes(kernels.model), *plain_dtypes(kernels.model)]
    dtypes = [f"{prefix}{form}/{cache}" for form in formats for cache in caches]
    tables = kernels.tables
    whole = [tables.family(f"{kind}_{phase}_module", dtypes) for phase in ("prefill", "decode")]
    work = Roofs(kernels.device, 16).latent
    shape = (mixer.heads // kernels.split.tp,)
    parts = LayerKernels()
    if whole[0] is not None and whole[1] is not None:
        parts.prefill.append((count, whole[0].sheet(shape, work, ()), True))
        parts.decode.append((count, whole[1].sheet(shape, work, ())))
        return parts
    parts.tokens += _products(kernels, mixer, count)
    arithmetic = [f"{each}/{cache}" for cache in caches for each in ("bfloat16", "fp8")]
    prefill, decode = (
        tables.required("mla_prefill", arithmetic),
        tables.required("mla_decode", caches),
    )
    parts.prefill.append((count, prefill.sheet(shape, work, ()), True))
    parts.decode.append((count, decode.sheet(shape, work, ())))
    return parts


def _products(kernels: Kernels, mixer: LatentAttention, count: int) -> list[tuple[float, Cost]]:
    """The matrix products around the attention itself, one of the absorbed kind included."""
    dtypes, hidden = mixer_dtypes(kernels.model), kernels.model.hidden_size
    heads = mixer.heads // kernels.split.tp
    query = heads * (mixer.nope_head_dim + mixer.rope_head_dim)
    down = mixer.kv_lora_rank + mixer.rope_head_dim
    if mixer.q_lora_rank is None:
        shapes = [(query + down, hidden)]
    else:
        shapes = [(mixer.q_lora_rank + down, hidden), (query, mixer.q_lora_rank)]
    shapes.append((hidden, heads * mixer.v_head_dim))
    products: list[tuple[float, Cost]] = [(count, kernels.gemm(n, k, dtypes)) for n, k in shapes]
    absorb = kernels.tables.family("mla_absorb", ("bfloat16",))
    if absorb is not None:
        line = absorb.scaled((heads,), lambda shape, _: shape[0])
        assert line is not None
        products.append((count, line.at))
    return products
