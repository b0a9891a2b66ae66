"""A GPU in figures."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """Memory, bandwidths and peak FLOP/s of one GPU.

    memory_bytes: what the driver gives a process, which is less than the name says.
    bandwidth_bytes_per_s: of device memory, peak. fp16_flops: dense FLOP/s of 16-bit matrices
    (fp16, bf16) with 32-bit accumulation. fp8_flops, fp32_flops: dense FLOP/s of these; fp8_flops
    equals fp16_flops where the hardware has no 8-bit floating point. host_bytes_per_s: of the link
    to the host, one way. peer_bytes_per_s: to other GPUs, one way. gpus_per_node: how many GPUs
    that link connects; others are reached over the network. tensor_headroom: how many times
    fp16_flops the same multiprocessors compute in GPUs with unthrottled matrix units. GeForce: 2,
    which accumulates in 32 bits at half its rate; H20: 4.4. runs_cuda: an NVIDIA GPU, on which
    engines use libraries that need CUDA (FlashInfer). shares_host_memory: its memory is the host's
    too, and the host's processes use some of it. source: where the figures come from.
    """

    name: str
    memory_bytes: int
    bandwidth_bytes_per_s: int
    fp16_flops: int
    fp8_flops: int
    fp32_flops: int
    host_bytes_per_s: int
    peer_bytes_per_s: int
    source: str
    gpus_per_node: int = 8
    tensor_headroom: float = 1.0
    runs_cuda: bool = True
    shares_host_memory: bool = False

    def flops(self, bits: float) -> int:
        """Dense FLOP/s of matrix products, by bits of an element."""
        if bits > 16:
            return self.fp32_flops
        return self.fp16_flops if bits > 8 else self.fp8_flops
