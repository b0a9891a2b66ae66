"""Slices of a GPU (NVIDIA's MIG): eighths of its memory and bandwidth, sevenths of its SMs.

Profiles as the MIG user guide lists them (docs.nvidia.com, supported MIG profiles): 1g, 2g, 3g, 4g
and 7g, with the memory that their names say. A slice reaches no other GPU but through the host.
"""

import re
from dataclasses import replace
from typing import NamedTuple

from kvsim.device.device import Device
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB

SLICED = (
    *("a100-40gb", "a100-80gb", "a100-80gb-pcie", "a800-80gb", "h100", "h100-pcie", "h100-nvl"),
    *("h800", "h20", "h200", "gh200", "b200", "gb200", "b300"),
)
EIGHTHS = {1: (1, 2), 2: (2,), 3: (4,), 4: (4,), 7: (8,)}  # of memory, by sevenths of SMs
_PROFILE = r"(?P<gpu>.+?)-(?:mig-)?(?P<sevenths>[1-9])g\.(?P<gb>\d{1,3})gb"
_NEAR = 0.1  # of the share: names are rounded


class Profile(NamedTuple):
    """A slice as its name says it: of which GPU, sevenths of its SMs, GB of its memory."""

    gpu: str
    sevenths: int
    gigabytes: int


def profile_of(name: str) -> Profile | None:
    """The slice in a name like h100-3g.40gb or a100-sxm4-80gb-mig-3g.40gb; None for other names."""
    found = re.fullmatch(_PROFILE, name)
    if found is None:
        return None
    return Profile(found["gpu"], int(found["sevenths"]), int(found["gb"]))


def sliced(device: Device, profile: Profile, where: str) -> Device:
    """The slice of `device`; InputError where the driver offers no such slice of it."""
    shares = EIGHTHS.get(profile.sevenths, ()) if device.name in SLICED else ()
    whole = device.memory_bytes / GIB
    for eighths in shares:
        if abs(profile.gigabytes / (whole * eighths / 8) - 1) <= _NEAR:
            name = f"{device.name}-{profile.sevenths}g.{profile.gigabytes}gb"
            return _share(device, name, profile.sevenths, eighths)
    known = [
        f"{sevenths}g.{whole * eighths / 8:.0f}gb"
        for sevenths, several in EIGHTHS.items()
        for eighths in several
        if device.name in SLICED
    ]
    raise InputError(
        f"{device.name} has no such slice",
        where=where,
        value=f"{profile.sevenths}g.{profile.gigabytes}gb",
        limit=f"about {', '.join(known)}" if known else "it is not sliced",
    )


def _share(device: Device, name: str, sevenths: int, eighths: int) -> Device:
    return replace(
        device,
        name=name,
        memory_bytes=device.memory_bytes * eighths // 8,
        bandwidth_bytes_per_s=device.bandwidth_bytes_per_s * eighths // 8,
        fp16_flops=device.fp16_flops * sevenths // 7,
        fp8_flops=device.fp8_flops * sevenths // 7,
        fp32_flops=device.fp32_flops * sevenths // 7,
        peer_bytes_per_s=device.host_bytes_per_s,
        source=f"{device.source}; {eighths} of 8 slices of memory, {sevenths} of 7 of SMs (MIG)",
    )
