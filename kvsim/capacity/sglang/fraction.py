"""The defaults that SGLang takes from the device: the chunk, the largest CUDA graph, and from them
mem_fraction_static (arg_groups/memory_hook.py, arg_groups/cuda_graph_hook.py).

    fraction = round((device - reserved) / device, 3)
    reserved = 512 MiB + 1.5 MiB a token of a chunk + 128 MiB a GPU + CUDA graphs

With copies of the attention, the chunk, max_running_requests and the GPUs are here those of the
whole server: SGLang takes the fraction before it shares them out. The settings are of one copy.
"""

from itertools import chain

from kvsim.capacity.sglang.settings import SglangSettings
from kvsim.capacity.sglang.versions import FLAT_RESERVE_MIB, GIB_MIB, SHARES
from kvsim.model.tower import Vision

SMALLEST_RESERVE_MIB, LARGE_DEVICE_MIB = 10 * 1024, 60 * 1024
FEWEST_ACTIVATION_TOKENS = 2048
# Of each copy of the attention and sequence of the largest CUDA graph; more for a large graph.
PADDED_MIB, LARGE_PADDED_MIB, LARGE_GRAPH = 3, 1.5, 300
COPIES_MIB = 4 * 1024  # more for copies of the attention, where the device's tier decides
# A tower of so many layers and so wide leaves so much of the share.
USUAL_LAYERS, USUAL_WIDTH, USUAL_LEFT = 24, 1024, 0.95


def chunk_of(settings: SglangSettings, device_mib: float, copies: int = 1) -> int:
    """Tokens of a chunk of one copy of the attention, given or by the device; -1: prompts are
    whole.
    """
    given = settings.chunked_prefill_size
    tier = settings.rules.tier_of(device_mib)
    return tier.chunk // copies if given is None else given


def default_fraction(
    settings: SglangSettings,
    device_mib: float,
    gpus: int,
    *,
    latent: bool,
    copies: int = 1,
    vision: Vision | None = None,
) -> float:
    """mem_fraction_static if not set, with layers split over `gpus` GPUs.

    latent: the model has latent attention (MLA). copies: of the attention. vision: the model's
    vision tower; None: it has none.
    """
    share = _share(settings, device_mib, gpus, latent=latent, copies=copies)
    by_parts = settings.rules.reserve in ("parts", "tiers")
    return share if vision is None or not by_parts else share * _left_beside(vision)


def _left_beside(vision: Vision) -> float:
    """Factor on mem_fraction_static for a vision tower (`adjust_mem_fraction_for_vlm`): the larger
    the tower, the smaller.
    """
    squares = vision.layers * vision.width**2 / (USUAL_LAYERS * USUAL_WIDTH**2)
    return USUAL_LEFT * max(0.8, min(1.05, 1 - 0.1 * (squares - 1)))


def _share(
    settings: SglangSettings, device_mib: float, gpus: int, *, latent: bool, copies: int
) -> float:
    rules = settings.rules
    tier, chunk = rules.tier_of(device_mib), copies * chunk_of(settings, device_mib, copies)
    if rules.reserve == "tiers":
        reserved = (tier.reserve_gib + gpus * tier.each_gib) * GIB_MIB
        reserved += COPIES_MIB if copies > 1 else 0
        return round((device_mib - reserved) / device_mib, 3)
    if rules.reserve != "parts":
        large = rules.reserve == "shares_up_to_80_gib" and device_mib > 80 * GIB_MIB
        by_gpus = next(share for least, share in SHARES if gpus >= least)
        return (device_mib - FLAT_RESERVE_MIB) / device_mib if large else by_gpus
    graph = tier.graph if gpus < 4 else tier.graph_of_several
    if settings.max_running_requests is not None and rules.clips_graphs:
        graph = min(graph, copies * settings.max_running_requests)
    tokens = max(chunk if chunk > 0 else settings.max_prefill_tokens, FEWEST_ACTIVATION_TOKENS)
    reserved = 512 + 1.5 * tokens + gpus / 8 * 1024 + 2 * graph
    if copies > 1:
        reserved += graph * copies * (PADDED_MIB + LARGE_PADDED_MIB * (graph > LARGE_GRAPH))
    if rules.prefill_graphs:
        reserved += 1.5 * 1024 if latent else 8 * _prefill_graphs(settings, chunk)
    if device_mib > LARGE_DEVICE_MIB:
        reserved = max(reserved, SMALLEST_RESERVE_MIB)
    return round((device_mib - reserved) / device_mib, 3)


def _prefill_graphs(settings: SglangSettings, chunk: int) -> int:
    """CUDA graphs of prefill steps, by their tokens."""
    largest = chunk
    if settings.max_total_tokens is not None:
        largest = min(largest, settings.max_total_tokens)
    sizes = chain(
        range(4, 33, 4),
        range(48, 257, 16),
        range(288, 513, 32),
        range(576, 1025, 64),
        range(1280, 4097, 256),
        range(4608, largest + 1, 512),
    )
    return sum(size <= largest for size in sizes)
