"""`[device]`: a GPU of the catalogue, perhaps with other figures, or one of the user's own."""

from dataclasses import replace
from typing import Any, Self

from pydantic import Field, model_validator

from kvsim.device.catalogue import GIGA, TERA, device_names, named_device
from kvsim.device.device import Device
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import GIB

NEEDED = ("bandwidth_gb_per_s", "fp16_tflops")


class DeviceOptions(Options):
    """name: of the catalogue, a slice of one of its GPUs ("h100-3g.40gb": MIG), or any name with
    memory, bandwidth_gb_per_s and fp16_tflops given.

    memory_gib or memory_bytes: what the driver reports as total. Bandwidths and links in GB/s (one
    way), FLOP/s dense in TFLOP/s. For a GPU outside the catalogue, fp8 FLOP/s default to the 16-bit
    figure, and fp32 FLOP/s to an eighth of it. Its links default to PCIe 4.0 (32 GB/s).
    gpus_per_node: GPUs that the link between GPUs connects (8; GB200: 72); all-reduces over more
    take the network.
    """

    name: str
    memory_gib: float | None = Field(default=None, ge=1e-6, le=1e9)
    memory_bytes: int | None = Field(default=None, gt=0)
    bandwidth_gb_per_s: float | None = Field(default=None, ge=1e-6, le=1e9)
    fp16_tflops: float | None = Field(default=None, ge=1e-6, le=1e9)
    fp8_tflops: float | None = Field(default=None, ge=1e-6, le=1e9)
    fp32_tflops: float | None = Field(default=None, ge=1e-6, le=1e9)
    host_gb_per_s: float | None = Field(default=None, ge=1e-6, le=1e9)
    peer_gb_per_s: float | None = Field(default=None, ge=1e-6, le=1e9)
    gpus_per_node: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _one_memory(self) -> Self:
        if self.memory_gib is not None and self.memory_bytes is not None:
            raise ValueError("give at most one of memory_gib and memory_bytes")
        return self

    def build(self) -> Device:
        """The device; InputError if the name is unknown and the figures are too few."""
        figures = self._figures()
        try:
            known = named_device(self.name)
        except InputError as error:
            if not figures:
                raise
            return self._own(figures, error)
        if not figures:
            return known
        return replace(known, **figures, source=f"{known.source}; {', '.join(figures)} as given")

    def _own(self, figures: dict[str, Any], unknown: InputError) -> Device:
        missing = [key for key in NEEDED if getattr(self, key) is None]
        if "memory_bytes" not in figures:
            missing.insert(0, "memory_gib")
        if missing:
            raise InputError(
                "not in the catalogue, and not described in full",
                where="device.name",
                value=repr(self.name),
                remedy=f"add {', '.join(missing)}, or use one of {', '.join(device_names())}",
            ) from unknown
        fp16, pcie = figures["fp16_flops"], 32 * GIGA
        rest = {
            "fp8_flops": fp16,
            "fp32_flops": fp16 // 8,
            "host_bytes_per_s": pcie,
            "peer_bytes_per_s": pcie,
        }
        return Device(name=self.name, **(rest | figures), source="as given in [device]")

    def _figures(self) -> dict[str, Any]:
        """The figures of the table, as fields of a Device."""
        scaled = {
            "memory_bytes": (self.memory_gib, GIB),
            "bandwidth_bytes_per_s": (self.bandwidth_gb_per_s, GIGA),
            "fp16_flops": (self.fp16_tflops, TERA),
            "fp8_flops": (self.fp8_tflops, TERA),
            "fp32_flops": (self.fp32_tflops, TERA),
            "host_bytes_per_s": (self.host_gb_per_s, GIGA),
            "peer_bytes_per_s": (self.peer_gb_per_s, GIGA),
        }
        figures = {field: round(value * scale) for field, (value, scale) in scaled.items() if value}
        whole = {"memory_bytes": self.memory_bytes, "gpus_per_node": self.gpus_per_node}
        figures |= {field: value for field, value in whole.items() if value is not None}
        return figures
