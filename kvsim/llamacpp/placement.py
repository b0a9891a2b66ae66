"""Placement of each layer's KV on devices: `-ngl` and `--tensor-split`."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from kvsim.llamacpp.sizes import Context, ContextSettings, KVLayer, layer_bytes, window_cells


def device_bytes(
    layers: Sequence[KVLayer | None],
    window: int,
    settings: ContextSettings,
    context: Context,
    gpu_layers: int,
    shares: Sequence[float],
) -> list[int]:
    """Bytes of KV in host memory, then on each GPU.

    gpu_layers: number of layers on GPUs, counted from the last, including the output layer. shares:
    share of each GPU among these (src/llama-model.cpp).
    """
    count = len(layers)
    total = sum(shares)
    ends = [share / total for share in accumulate(shares)]
    first = max(0, count + 1 - gpu_layers)
    on_gpus = min(gpu_layers, count + 1)
    found = [0] * (len(shares) + 1)
    for at, layer in enumerate(layers):
        if layer is None:
            continue
        windowed = layer.windowed and window
        cells = window_cells(window, settings, context) if windowed else context.n_ctx_seq
        num_bytes = sum(layer_bytes(layer, settings)) * cells * context.buffers
        gpu = bisect_right(ends, (at - first) / on_gpus) if at >= first else -1
        found[min(gpu, len(shares) - 1) + 1] += num_bytes
    return found
