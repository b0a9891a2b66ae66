"""Ceilings of the device: bandwidth and FLOP/s that no sample may exceed."""

from functools import partial

import torch

from kvsim.backend.measure.timing import StepClock, clock_of

LINK_BYTES = tuple(1 << power for power in range(15, 29))  # 32 KiB to 256 MiB


def ceilings(device: str, dtype: str) -> dict[str, object]:
    """Rates of copying, of reading alone and of GEMMs, and on a GPU of the host link both ways.

    copy_bytes_per_s counts bytes read and written, read_bytes_per_s is of a sum, and
    gemm_flop_per_s counts multiplications and additions. links are lists of [bytes, seconds] of
    pinned copies; copy_latency_s is that of a copy of one element.
    """
    on_gpu = device.startswith("cuda")
    clock = clock_of(device, 0.3)
    torch_dtype = getattr(torch, dtype)
    numbers = (1 << 30 if on_gpu else 1 << 26) // torch_dtype.itemsize
    source = torch.empty(numbers, dtype=torch_dtype, device=device).normal_()
    target = torch.empty_like(source)
    copy = clock.time(lambda: target.copy_(source))
    read = clock.time(source.sum)
    latency = clock.time(lambda: target[:1].copy_(source[:1]))
    side = 8192 if on_gpu else 512
    a, b = source[: side * side].view(side, side), target[: side * side].view(side, side)
    gemm = clock.time(lambda: a @ b)
    found: dict[str, object] = {
        "copy_bytes_per_s": 2 * source.nbytes / copy.seconds,
        "read_bytes_per_s": source.nbytes / read.seconds,
        "copy_latency_s": latency.seconds,
        "gemm_flop_per_s": 2 * side**3 / gemm.seconds,
    }
    if on_gpu:
        del source, target, a, b
        found |= _links(clock, device)
    return found


def _links(clock: StepClock, device: str) -> dict[str, object]:
    host = torch.empty(LINK_BYTES[-1], dtype=torch.uint8, pin_memory=True).random_()
    there = torch.empty(LINK_BYTES[-1], dtype=torch.uint8, device=device)
    to_device, to_host = [], []
    for size in LINK_BYTES:
        near, far = host[:size], there[:size]
        up = clock.time(partial(far.copy_, near, non_blocking=True))
        down = clock.time(partial(near.copy_, far, non_blocking=True))
        to_device.append([size, up.seconds])
        to_host.append([size, down.seconds])
    return {"host_to_device": to_device, "device_to_host": to_host}
