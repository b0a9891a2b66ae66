"""`[device]`: a GPU of the catalogue, perhaps with other figures, or one of the user's own."""

from dataclasses import replace
from typing import Any, Self

from pydantic import Field, model_validator

from kvsim.device.catalogue import GIGA, TERA, device_names, named_device
from kvsim.device.device import Device
from kvsim.device.stages import stage_devices
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import GIB

NEEDED = ("bandwidth_gb_per_s", "fp16_tflops")


class DeviceFigures(Options):
    """The name of a GPU and the figures that replace or describe its own."""

    name: str | None = None
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

    def named(self, name: str, where: str) -> Device:
        """The GPU of this name with these figures; InputError, found in the table `where`, if the
        name is unknown and the figures are too few.
        """
        figures = self._figures()
        try:
            known = named_device(name, f"{where}.name")
        except InputError as error:
            if not figures:
                raise
            return self._own(name, figures, where, error)
        return self.over(known)

    def over(self, device: Device) -> Device:
        """The device with these figures in place of its own."""
        figures = self._figures()
        if not figures:
            return device
        return replace(device, **figures, source=f"{device.source}; {', '.join(figures)} as given")

    def _own(self, name: str, figures: dict[str, Any], where: str, unknown: InputError) -> Device:
        missing = [key for key in NEEDED if getattr(self, key) is None]
        if "memory_bytes" not in figures:
            missing.insert(0, "memory_gib")
        if missing:
            raise InputError(
                "not in the catalogue, and not described in full",
                where=f"{where}.name",
                value=repr(name),
                remedy=f"add {', '.join(missing)}, or use one of {', '.join(device_names())}",
            ) from unknown
        fp16, pcie = figures["fp16_flops"], 32 * GIGA
        rest = {
            "fp8_flops": fp16,
            "fp32_flops": fp16 // 8,
            "host_bytes_per_s": pcie,
            "peer_bytes_per_s": pcie,
        }
        return Device(name=name, **(rest | figures), source="as given in [device]")

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


class StageDevice(DeviceFigures):
    """The GPUs of one pipeline stage, where they are not those of `[device]`.

    number: of the stage, the first is 1. With a name, the table takes nothing from `[device]` and
    has the same keys. Without one, its keys replace those of `[device]`.
    """

    number: int = Field(ge=1)

    @model_validator(mode="after")
    def _of_another_kind(self) -> Self:
        if self.name is None and not self._figures():
            raise ValueError("give the name of a GPU, or a figure in which it differs")
        return self

    def on(self, device: Device) -> Device:
        """The GPU of this stage, where the others have `device`."""
        if self.name is None:
            return self.over(device)
        return self.named(self.name, "device.stage")


class DeviceOptions(DeviceFigures):
    """name: of the catalogue, a slice of one of its GPUs ("h100-3g.40gb": MIG), or any name with
    memory, bandwidth_gb_per_s and fp16_tflops given.

    memory_gib or memory_bytes: what the driver reports as total. Bandwidths and links in GB/s (one
    way), FLOP/s dense in TFLOP/s. For a GPU outside the catalogue, fp8 FLOP/s default to the 16-bit
    figure, and fp32 FLOP/s to an eighth of it. Its links default to PCIe 4.0 (32 GB/s).
    gpus_per_node: GPUs that the link between GPUs connects (8; GB200: 72); all-reduces over more
    take the network. stage: pipeline stages with GPUs of another kind, one table each.
    """

    name: str
    stage: tuple[StageDevice, ...] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _each_stage_once(self) -> Self:
        numbers = [each.number for each in self.stage or ()]
        twice = next((each for at, each in enumerate(numbers) if each in numbers[:at]), None)
        if twice is not None:
            raise ValueError(f"two tables are of stage {twice}")
        return self

    def build(self) -> Device:
        """The device; InputError if the name is unknown and the figures are too few."""
        return self.named(self.name, "device")

    def on_stages(self, count: int) -> tuple[Device, ...]:
        """The device of each of `count` pipeline stages; InputError if a [[device.stage]] table has
        no such stage, or if every stage has its own name.
        """
        device = self.build()
        own = {each.number: each.on(device) for each in self.stage or ()}
        named = [each.number for each in self.stage or () if each.name is not None]
        devices = stage_devices(device, own, count, "device.stage.number")
        if len(named) == count:
            raise InputError(
                "changes nothing: every stage names a GPU of its own",
                where="device.name",
                value=self.name,
                remedy="name the GPU of one stage here, and leave out the table of this stage",
            )
        return devices
