"""SGLang's division of a device's memory: its share for weights and pools, and what they leave for
KV.

    pools = free after the weights - free before them * (1 - mem_fraction_static)

Free before the weights is the device without CUDA's context and the buffers of NCCL and of the
custom all-reduce. In start-up logs in public issues 0.6 to 2.5 GiB are in use by then. They are of
two RTX 4090s (kvcache-ai/ktransformers #1870) and eight H200s (sgl-project/sglang #11716,
SemiAnalysisAI/InferenceX #2128). CUDA graphs and activations use the headroom.
"""

from dataclasses import replace
from typing import NamedTuple

from kvsim.capacity.estimate.non_torch import on_pcie
from kvsim.capacity.sglang.fraction import chunk_of, default_fraction
from kvsim.capacity.sglang.pools import Pools, divide
from kvsim.capacity.sglang.settings import SglangSettings
from kvsim.device import Device
from kvsim.layout import KVLayout
from kvsim.model import LatentAttention, Model, ModelOptions
from kvsim.model.layers.recurrence import Recurrence
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB, MIB

# Of the fraction, where a sequence may have more tokens.
AITER_SHARE, AITER_TOKENS = 0.85, 8192
# Gone of memory that is the host's too: 112.3 of 119.7 GiB are free on a DGX Spark.
HOST_GIB = 7.4
# On one GPU, and for each further one that NVLink joins; for all further ones without it: RTX 4090s
# have 0.44 GiB gone on four and 0.59 on two, RTX 3090s 0.67 on two.
SET_UP_GIB, SET_UP_MORE_GIB, PCIE_MORE_GIB = 0.5, 0.24, 0.1
# Models with sliding windows, by model_type, that have a pool of their own for them
# (configs/model_config.py `is_hybrid_swa_model`); the windows of others are kept whole.
WINDOWED_KINDS = ("gpt_oss", "gemma4_text", "mimo_v2", "mimo_v2_flash", "step3p5")
# Models whose chunks of local attention SGLang keeps as windows of a chunk's length
# (model_runner_components/load_model_utils.py), and whose towers it does not load by default.
CHUNKED_KINDS = ("llama4_text",)
# Models of recurrent states alone (configs/model_config.py `PURE_SSM_ARCHITECTURES`).
STATE_KINDS = ("mamba", "mamba2", "falcon_mamba")
UNNAMED_CONTEXT = 2048  # of a config without a longest sequence (`get_context_length`)
SHORT_KINDS = ("gpt_oss", "gemma4_text")  # the cache counts their window as a token less


class SglangPool(NamedTuple):
    """The memory of one GPU, in bytes: total = set_up + weights + headroom + budget.

    set_up_bytes: in use before the weights are loaded (estimate). headroom_bytes: left for
    activations and CUDA graphs. budget_bytes: bytes for the pools. chunked_prefill_size: tokens of
    a prefill chunk; -1: whole prompts. latent: keys and values are one latent (MLA).
    """

    mem_fraction_static: float
    total_bytes: int
    set_up_bytes: int
    weights_bytes: int
    headroom_bytes: int
    budget_bytes: int
    page_size: int
    chunked_prefill_size: int
    max_prefill_tokens: int
    max_model_len: int
    latent: bool
    pools: Pools


def size_sglang(
    model: Model, device: Device, options: ModelOptions, settings: SglangSettings
) -> SglangPool:
    """The pools of one GPU; with copies of the attention (`data_parallel_size`), `settings` are
    those of one copy. InputError names a feature for which SGLang's sizing is not modelled; also
    raised where the weights leave nothing.
    """
    if model.kind in CHUNKED_KINDS:
        model = model.without_towers()
    _check(model, options, settings)
    tp, device_mib = options.tensor_parallel_size, device.memory_bytes / MIB
    copies = options.data_parallel_size
    gpus = tp * copies
    model.check_tensor_parallel(tp)
    fraction = settings.mem_fraction_static
    latent = any(isinstance(layer.mixer, LatentAttention) for layer in model.layers)
    if fraction is None:
        fraction = default_fraction(
            settings,
            device_mib,
            gpus,
            latent=latent,
            copies=copies,
            vision=model.vision,
        )
    if _on_aiter(model, device, options, settings, latent=latent):
        fraction *= AITER_SHARE
    set_up = int(_set_up_gib(device, gpus) * GIB)
    free = device.memory_bytes - set_up
    weights = model.weight_bytes(tp, copies)
    if settings.weights_gib is not None:
        weights = int(settings.weights_gib * GIB)
    headroom = int(free * (1 - fraction))
    budget = free - weights - headroom
    if budget <= 0:
        raise InputError(
            f"no memory is left for KV: {model.name} takes {weights / GIB:.2f} GiB of weights on "
            f"each {device.name}",
            where="mem_fraction_static",
            value=fraction,
            limit=f"more than {weights / free:.3f}"
            if weights < free
            else f"{max(free, 0) / GIB:.2f} GiB before the weights",
            remedy=f"raise {'it or ' if weights < free else ''}tensor_parallel_size, or quantise "
            "the weights",
        )
    _check_caches(model, options)
    chunk, longest = chunk_of(settings, device_mib, copies), context_of(model, options)
    pools = divide(
        budget,
        sglang_layout(model, options),
        settings,
        chunk=chunk,
        max_model_len=longest,
    )
    return SglangPool(
        mem_fraction_static=fraction,
        total_bytes=device.memory_bytes,
        set_up_bytes=set_up,
        weights_bytes=weights,
        headroom_bytes=headroom,
        budget_bytes=budget,
        page_size=settings.page_size,
        chunked_prefill_size=chunk,
        max_prefill_tokens=settings.max_prefill_tokens,
        max_model_len=longest,
        latent=latent,
        pools=pools,
    )


def _set_up_gib(device: Device, gpus: int) -> float:
    if device.shares_host_memory:
        return HOST_GIB
    if on_pcie(device):
        return SET_UP_GIB + PCIE_MORE_GIB * (gpus > 1)
    return SET_UP_GIB + (gpus - 1) * SET_UP_MORE_GIB


def _check(model: Model, options: ModelOptions, settings: SglangSettings) -> None:
    for key in ("pipeline_parallel_size", "decode_context_parallel_size"):
        if getattr(options, key) > 1:
            raise InputError(
                "SGLang's sizing is followed for GPUs that split layers alone",
                where=f"model.{key}",
                value=getattr(options, key),
                limit=1,
                remedy="leave it at 1, or give the pool by kv_cache_tokens alone",
            )


def _check_caches(model: Model, options: ModelOptions) -> None:
    if any(cache.own_block is not None for cache in options.caches(model)):
        raise InputError(
            "SGLang's pools of compressed caches are not followed",
            where="model",
            value=model.name,
            remedy="give the pool by kv_cache_tokens alone",
        )


def _on_aiter(
    model: Model, device: Device, options: ModelOptions, settings: SglangSettings, *, latent: bool
) -> bool:
    """Whether AMD's attention kernels lower mem_fraction_static, given or not: for long sequences
    (server_args.py, "aiter"; the default there but for MLA).
    """
    amd = not device.runs_cuda and device.name.startswith("mi")
    longest = context_of(model, options)
    return settings.rules.shrinks_aiter and amd and not latent and longest > AITER_TOKENS


def context_of(model: Model, options: ModelOptions) -> int:
    """The longest sequence: as given, else as the model's config says. Configs of purely recurrent
    models do not say it. A server accepts a longer one only with
    SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1.
    """
    longest = options.model_len(model)
    if options.max_model_len is None and model.kind in STATE_KINDS:
        return min(longest, UNNAMED_CONTEXT)
    return longest


def cached_layout(model_kind: str, layout: KVLayout) -> KVLayout:
    """The layout as SGLang's pools store its layers.

    Windows that it stores whole are full attention, and chunks are windows. Those of gpt-oss and
    Gemma 4 end one token earlier than the model says.
    """
    groups = []
    for group in layout.groups:
        window = group.window_tokens
        if group.chunk_tokens is not None and model_kind in CHUNKED_KINDS:
            reach = group.chunk_tokens
            group = replace(group, kind="sliding", window_tokens=reach, chunk_tokens=None)
        elif group.kind == "sliding" and window is not None:
            if model_kind not in WINDOWED_KINDS:
                group = replace(group, kind="full", window_tokens=None, chunk_tokens=None)
            elif model_kind in SHORT_KINDS:
                group = replace(group, window_tokens=window - 1)
        groups.append(group)
    return KVLayout(tuple(groups))


def sglang_layout(model: Model, options: ModelOptions) -> KVLayout:
    """The layers of the model on one GPU, as SGLang's pools take them."""
    model = with_states(model)
    return cached_layout(model.kind, options.layout(model, by_chunk=model.kind in CHUNKED_KINDS))


def with_states(model: Model) -> Model:
    """The model with recurrent states as SGLang keeps them: in float32, unless their dtype is named
    (configs/mamba_utils.py, `mamba2_state_dtype`).
    """
    layers = []
    for layer in model.layers:
        mixer = layer.mixer
        if isinstance(mixer, Recurrence) and not mixer.ssm_dtype_named:
            layer = replace(layer, mixer=replace(mixer, ssm_dtype="float32"))
        layers.append(layer)
    return replace(model, layers=tuple(layers))
