"""Devices: memory, bandwidth and FLOP/s of a GPU."""

from kvsim.device.catalogue import device_names, named_device, own_figures, sized_device
from kvsim.device.device import Device
from kvsim.device.options import DeviceOptions, StageDevice
from kvsim.device.stages import stage_devices

__all__ = [
    "Device",
    "DeviceOptions",
    "StageDevice",
    "device_names",
    "named_device",
    "own_figures",
    "sized_device",
    "stage_devices",
]
