"""What the device can do at best: no sample may claim more."""

import torch

from kvsim.backend.measure.timing import Clock, CpuClock, CudaClock

LINK_BYTES = tuple(1 << power for power in range(15, 29))  # 32 KiB to 256 MiB


def ceilings(device: str, dtype: str) -> dict[str, object]:
    """Copy and GEMM rates, and on a GPU the host link in both directions.

    copy_bytes_per_s counts bytes read and written; gemm_flop_per_s multiplies and adds; links are
    lists of [bytes, seconds] of pinned copies; copy_latency_s is that of a copy of one element.
    """
    on_gpu = device.startswith("cuda")
    clock: Clock = CudaClock() if on_gpu else CpuClock(0.3)
    torch_dtype = getattr(torch, dtype)
    numbers = (1 << 30 if on_gpu else 1 << 26) // torch_dtype.itemsize
    source = torch.empty(numbers, dtype=torch_dtype, device=device).normal_()
    target = torch.empty_like(source)
    copy = clock.time(lambda: target.copy_(source))
    latency = clock.time(lambda: target[:1].copy_(source[:1]))
    side = 8192 if on_gpu else 512
    a, b = source[: side * side].view(side, side), target[: side * side].view(side, side)
    gemm = clock.time(lambda: a @ b)
    found: dict[str, object] = {
        "copy_bytes_per_s": 2 * source.nbytes / copy.seconds,
        "copy_latency_s": latency.seconds,
        "gemm_flop_per_s": 2 * side**3 / gemm.seconds,
    }
    if on_gpu:
        del source, target, a, b
        found |= _links(clock, device)
    return found


def _links(clock: Clock, device: str) -> dict[str, object]:
    host = torch.empty(LINK_BYTES[-1], dtype=torch.uint8, pin_memory=True).random_()
    there = torch.empty(LINK_BYTES[-1], dtype=torch.uint8, device=device)
    to_device, to_host = [], []
    for size in LINK_BYTES:
        near, far = host[:size], there[:size]
        up = clock.time(lambda near=near, far=far: far.copy_(near, non_blocking=True))  # type: ignore[misc]
        down = clock.time(lambda near=near, far=far: near.copy_(far, non_blocking=True))  # type: ignore[misc]
        to_device.append([size, up.seconds])
        to_host.append([size, down.seconds])
    return {"host_to_device": to_device, "device_to_host": to_host}
