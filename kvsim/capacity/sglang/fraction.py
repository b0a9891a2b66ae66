"""The defaults that SGLang takes from the device: the chunk, the largest CUDA graph, and from them
mem_fraction_static (arg_groups/memory_hook.py, arg_groups/cuda_graph_hook.py).

    fraction = round((device - reserved) / device, 3)
    reserved = 512 MiB + 1.5 MiB a token of a chunk + 128 MiB a GPU + CUDA graphs

With copies of the attention, the chunk, max_running_requests and the GPUs are here those of the
whole server: SGLang takes the fraction before it shares them out. The settings are of one copy.
"""

from itertools import chain
from typing import NamedTuple

from kvsim.capacity.sglang.settings import SglangSettings

SMALLEST_RESERVE_MIB, LARGE_DEVICE_MIB = 10 * 1024, 60 * 1024
FEWEST_ACTIVATION_TOKENS = 2048
# Of each copy of the attention and sequence of the largest CUDA graph; more for a large graph.
PADDED_MIB, LARGE_PADDED_MIB, LARGE_GRAPH = 3, 1.5, 300


class Tier(NamedTuple):
    """Devices below so many MiB: tokens of a chunk, sequences of the largest CUDA graph, and the
    same where a layer is split over four GPUs or more.
    """

    below_mib: float
    chunk: int
    graph: int
    graph_of_several: int


TIERS = (
    Tier(20 * 1024, 2048, 8, 8),
    Tier(35 * 1024, 4096, 48, 160),
    Tier(60 * 1024, 4096, 32, 160),
    Tier(160 * 1024, 8192, 256, 512),
    Tier(float("inf"), 16384, 512, 512),
)


def tier_of(device_mib: float) -> Tier:
    """The tier of a device."""
    return next(tier for tier in TIERS if device_mib < tier.below_mib)


def chunk_of(settings: SglangSettings, device_mib: float, copies: int = 1) -> int:
    """Tokens of a chunk of one copy of the attention, given or by the device; -1: prompts are
    whole.
    """
    given = settings.chunked_prefill_size
    return tier_of(device_mib).chunk // copies if given is None else given


def default_fraction(
    settings: SglangSettings, device_mib: float, gpus: int, *, latent: bool, copies: int = 1
) -> float:
    """mem_fraction_static if not set, on so many GPUs that share the layers. latent: the model has
    latent attention (MLA). copies: of the attention.
    """
    tier, chunk = tier_of(device_mib), copies * chunk_of(settings, device_mib, copies)
    graph = tier.graph if gpus < 4 else tier.graph_of_several
    if settings.max_running_requests is not None:
        graph = min(graph, copies * settings.max_running_requests)
    tokens = max(chunk if chunk > 0 else settings.max_prefill_tokens, FEWEST_ACTIVATION_TOKENS)
    reserved = 512 + 1.5 * tokens + gpus / 8 * 1024 + 2 * graph
    if copies > 1:
        reserved += graph * copies * (PADDED_MIB + LARGE_PADDED_MIB * (graph > LARGE_GRAPH))
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
