"""Roofline times of kernels: their ratios scale measured times to shapes that were not measured."""

from dataclasses import dataclass

from kvsim.device import Device
from kvsim.step_time.kernels.tables import Shape

MEASURED_BITS = {"nvfp4": 4.5, "int4_wo": 4.5, "w4a16_mxfp4": 4.25, "w4a8_mxfp4_mxfp8": 4.25}
MLA_WIDTHS = (192, 128)  # DeepSeek-V3's keys and values of a head, which the tables measured
MLA_LATENT = (576, 512)  # its latent with the rotated part, and without


def bits_of(dtype: str) -> float:
    """Bits a stored element has in a dtype of the tables."""
    if dtype in MEASURED_BITS:
        return MEASURED_BITS[dtype]
    return 8 if dtype.startswith(("fp8", "int8")) else 16


@dataclass(frozen=True, slots=True)
class Roofs:
    """Peak rates of a device, for matrices stored in `bits` bits."""

    device: Device
    bits: float

    def _seconds(self, moved_bytes: float, flops: float) -> float:
        """Time in s of a kernel that moves `moved_bytes` bytes and computes `flops` FLOPs."""
        peak = self.device.flops(8 if self.bits <= 8 else 16)
        return max(moved_bytes / self.device.bandwidth_bytes_per_s, flops / peak)

    def read_seconds(self, kind: str, shape: Shape, tokens: float) -> float:
        """The time of the weights that a product or experts read, at the peak bandwidth."""
        if kind == "gemm":
            elements: float = shape[0] * shape[1]
        else:
            hidden, inter, per_token, experts, tp, ep = shape
            elements = self._met(per_token, experts, tokens) / ep * 3 * hidden * inter / tp
        return elements * self.bits / 8 / self.device.bandwidth_bytes_per_s

    @staticmethod
    def _met(per_token: int, experts: int, tokens: float) -> float:
        """Expected number of experts used by `tokens` tokens, routed evenly."""
        met: float = experts * (1 - (1 - per_token / experts) ** tokens)
        return met

    def gemm(self, shape: Shape, tokens: float) -> float:
        """Seconds of a matrix product (n, k) with `tokens` tokens."""
        n, k = shape
        moved = n * k * self.bits / 8 + 2 * tokens * (n + k)
        return self._seconds(moved, 2 * tokens * n * k)

    def experts(self, shape: Shape, tokens: float) -> float:
        """Seconds of routed experts; shape: (hidden, intermediate, experts a token, experts, tp,
        ep).
        """
        hidden, inter, per_token, experts, tp, ep = shape
        one = 3 * hidden * inter / tp
        met = self._met(per_token, experts, tokens) / ep
        moved = met * one * self.bits / 8 + 4 * tokens * hidden
        return self._seconds(moved, 2 * tokens * per_token / ep * one)

    def decode(self, shape: Shape, context: float) -> float:
        """Seconds of decode attention; shape: (heads, kv_heads, head_dim, window, batch)."""
        heads, kv_heads, width, window, batch = shape
        seen = batch * (min(context, window) if window else context)
        return self._seconds(2 * seen * kv_heads * width * self.bits / 8, 4 * seen * heads * width)

    def prefill(self, shape: Shape, tokens: float) -> float:
        """Seconds of prefill attention; shape: (heads, kv_heads, head_dim, window, batch)."""
        heads, kv_heads, width, window, batch = shape
        seen = min(tokens, window) if window else tokens
        pairs = batch * seen * (tokens - seen / 2)
        moved = 2 * batch * tokens * (heads + kv_heads) * width * 2
        return self._seconds(moved, 4 * pairs * heads * width)

    def mla_prefill(self, shape: Shape, tokens: float) -> float:
        """Seconds of MLA prefill over the expanded latent; shape: (heads, batch)."""
        heads, batch = shape
        keys, values = MLA_WIDTHS
        moved = 4 * batch * tokens * heads * (keys + values)
        return self._seconds(moved, batch * tokens**2 * heads * (keys + values))

    def mla_decode(self, shape: Shape, context: float) -> float:
        """Seconds of MLA decode over the latent itself; shape: (heads, batch)."""
        heads, batch = shape
        kept, read = MLA_LATENT
        seen = batch * context
        return self._seconds(seen * kept * self.bits / 8, 2 * seen * heads * (kept + read))

    def latent(self, shape: Shape, tokens: float) -> float:
        """Relative work of absorbed MLA attention, of prefill or decode; shape: (heads, batch)."""
        heads, batch = shape
        return heads * batch * tokens
