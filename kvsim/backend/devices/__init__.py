"""Devices of the backend: a GPU, or a CPU that runs the same code."""

from kvsim.backend.devices.cpu import CpuDevice
from kvsim.backend.devices.cuda import CudaDevice
from kvsim.backend.devices.device import TorchDevice

DEVICES: dict[str, type[TorchDevice]] = {"cpu": CpuDevice, "cuda": CudaDevice}


def device_of(name: str) -> TorchDevice:
    """The device that torch calls `name` ("cpu", "cuda", "cuda:1")."""
    return DEVICES[name.partition(":")[0]](name)
