"""Kernels of a device without measured ones: a roofline of its own for each kind and dtype.

Let a kernel move `m` seconds of bytes and compute `c` seconds of FLOPs, by the device's peak rates.
It then takes start + ((m / memory)^s + (c / compute)^s)^(1/s). The four constants of each kind are
fitted over all devices that have tables (`calibration/kernels/roofs.json`).
evidence/points/fit_roofs.py makes them, and reports the errors of fits with each device left out.

What keeps a kernel below the peak is the multiprocessors' other work, by the knee's own sharpness.
A GPU with throttled matrix units (`Device.tensor_headroom`) has that many times as long for the
other work, so it comes nearer to its peak. No such GPU was measured.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from kvsim.device import Device
from kvsim.plumbing.shipped import shipped_folder
from kvsim.step_time.kernels.tables import KernelFamily, KernelLine, KernelLookup, Shape, Work
from kvsim.step_time.kernels.work import Roofs, bits_of

ROOFS_FILE = shipped_folder("calibration") / "kernels" / "roofs.json"
PLAIN = ("bfloat16", "int4_wo", "int8_wo", "w4a16_mxfp4")  # formats that compute in 16 bits
BY_CACHE = ("decode_attention", "mla_decode")  # whose dtype is the cache's alone
UNMEASURED = {("gemm", "int4_wo"): "bfloat16", ("gemm", "int8_wo"): "bfloat16"}
WORK = {
    "gemm": Roofs.gemm,
    "moe": Roofs.experts,
    "decode_attention": Roofs.decode,
    "prefill_attention": Roofs.prefill,
    "mla_decode": Roofs.mla_decode,
    "mla_prefill": Roofs.mla_prefill,
}
TOKENS = sorted({*range(1, 17), *(round(16 * 2 ** (at / 4)) for at in range(49))})
CONTEXTS = (1, *(round(16 * 2 ** (at / 2)) for at in range(27)))
BATCHES = tuple(2**at for at in range(11))
GROUPS = range(2, 17)  # GPUs of an all-reduce


@dataclass(frozen=True, slots=True)
class FittedRoofs(Roofs):
    """Fitted roofline of one kind and dtype. start_us: start of every kernel. memory, compute:
    shares of the peak rates that kernels reach. sharpness: of the knee between them. plain: whether
    it computes in 16 bits.
    """

    start_us: float = 0.0
    memory: float = 1.0
    compute: float = 1.0
    sharpness: float = 1.0
    plain: bool = True

    def _seconds(self, moved_bytes: float, flops: float) -> float:
        peak = self.device.flops(16 if self.plain else 8)
        moving = moved_bytes / self.device.bandwidth_bytes_per_s / self.memory
        computing = flops / peak / self.compute
        knee = self.sharpness
        both: float = (moving**knee + computing**knee) ** (1 / knee)
        return self.start_us / 1e6 + both

    @classmethod
    def of(cls, device: Device, kind: str, dtype: str, constants: Sequence[float]) -> Self:
        """The roofs of a device with the fitted constants of a kind and dtype, in the order of the
        fields.
        """
        arithmetic, _, cache_dtype = dtype.partition("/")
        plain = kind in BY_CACHE or arithmetic in PLAIN
        start_us, memory, compute, knee = constants
        compute = _nearer_to_peak(compute, knee, device.tensor_headroom)
        bits = bits_of(cache_dtype or arithmetic)
        return cls(device, bits, start_us, memory, compute, knee, plain)


def _nearer_to_peak(share: float, knee: float, headroom: float) -> float:
    """The share of its peak that a device comes to, from that of devices without headroom."""
    if share >= 1:
        return share
    other_work: float = share**-knee - 1
    nearer: float = (1 + other_work / headroom**knee) ** (-1 / knee)
    return nearer


class RoofFamily(KernelFamily):
    """Curves of any shape, from a kernel's work and fitted constants."""

    def __init__(self, kind: str, roofs: FittedRoofs) -> None:
        super().__init__({})
        self._kind = kind
        self._roofs = roofs

    def _line(self, shape: Shape, grid: Sequence[int]) -> KernelLine:
        work = WORK[self._kind]
        return KernelLine(
            tuple(map(float, grid)), tuple(1e6 * work(self._roofs, shape, x) for x in grid)
        )

    def scaled(self, shape: Shape, work: Work, equal_at: Sequence[int] = ()) -> KernelLine | None:
        return self._line(shape, TOKENS)

    def between(self, shape: Shape, work: Work) -> KernelLine:
        return self._line(shape, TOKENS)

    def sheet(self, shape: Shape, work: Work, equal_at: Sequence[int]) -> dict[int, KernelLine]:
        window = shape[3] if len(shape) > 3 else 0
        grid = sorted({*CONTEXTS, window} - {0})
        return {batch: self._line((*shape, batch), grid) for batch in BATCHES}


class RoofTables(KernelLookup):
    """Kernels of one device and engine, timed by fitted rooflines. fit: fitted constants instead of
    those in ROOFS_FILE.
    """

    def __init__(self, device: Device, engine: str, fit: dict[str, Any] | None = None) -> None:
        error = _fitted()["left_out"].get(engine, {"median": 0.0, "mean": 0.0})
        median, mean = (f"{100 * error[name]:.0f} %" for name in ("median", "mean"))
        source = (
            "estimated from kernels measured on several GPUs (on a GPU left out of the estimate, "
            f"the kernels of a step are off by {median} in the median and {mean} in the mean)"
        )
        super().__init__(f"{device.name} by fitted rooflines", source, measured=False)
        self._device = device
        self._engine = engine
        self._fit = fit or _fitted()

    def _read(self, kind: str, dtype: str) -> KernelFamily | None:
        if kind == "all_reduce":
            return KernelFamily({(gpus,): self._reduction(gpus) for gpus in GROUPS})
        measured = UNMEASURED.get((kind, dtype), dtype)
        found = [
            each for each in self._fit["roofs"] if (each["kind"], each["dtype"]) == (kind, measured)
        ]
        if not found:
            return None
        own = [each for each in found if each["engine"] == self._engine]
        constants = (own or found)[0]["constants"]
        return RoofFamily(kind, FittedRoofs.of(self._device, kind, dtype, constants))

    def _reduction(self, gpus: int) -> KernelLine:
        """An all-reduce by its 16-bit elements: over a switch, or over the host's bus."""
        rate = self._device.peer_bytes_per_s
        links = [each for each in self._fit["links"] if each["least_gb_per_s"] * 1e9 <= rate]
        swift = max(each["least_gb_per_s"] for each in links)
        near = min(
            (each for each in links if each["least_gb_per_s"] == swift),
            key=lambda each: abs(each["gpus"] - gpus),
        )
        slope = 2 * 2 * (gpus - 1) / gpus / (rate * near["share"]) * 1e6
        return KernelLine((0.0, 1e9), (near["latency_us"], near["latency_us"] + 1e9 * slope))


@cache
def _fitted() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ROOFS_FILE.read_text("utf-8"))
    return found
