"""The built-in GPUs; figures and sources are in `catalogue.toml` in this folder."""

from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from kvsim.device.device import Device
from kvsim.device.slices import profile_of, sliced
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.toml_text import loads
from kvsim.plumbing.units import GIB

GIGA, TERA = 10**9, 10**12
_COMPUTES = {
    "bandwidth_gb_per_s": "bandwidth_bytes_per_s",
    "fp16_tflops": "fp16_flops",
    "fp8_tflops": "fp8_flops",
    "fp32_tflops": "fp32_flops",
}


@cache
def _tables() -> dict[str, dict[str, Any]]:
    text = files("kvsim.device").joinpath("catalogue.toml").read_text(encoding="utf-8")
    return loads(text)


@cache
def _by_alias() -> dict[str, str]:
    return {alias: name for name, table in _tables().items() for alias in (name, *table["aliases"])}


def device_names() -> tuple[str, ...]:
    """The names of the built-in GPUs, in the catalogue's order."""
    return tuple(_tables())


# Keys of the catalogue with a default.
_BESIDE = ("gpus_per_node", "tensor_headroom", "runs_cuda", "shares_host_memory")


def named_device(name: str, where: str = "device.name") -> Device:
    """The built-in GPU of this name or alias, in any case, or a slice of one (h100-3g.40gb);
    InputError names the nearest ones.
    """
    wanted = name.strip().lower().replace(" ", "-").replace("_", "-").removeprefix("nvidia-")
    short = _by_alias().get(wanted)
    profile = profile_of(wanted) if short is None else None
    if profile is not None:
        return sliced(named_device(profile.gpu, where), profile, where)
    if short is None:
        close = dict.fromkeys(
            _by_alias()[each] for each in get_close_matches(wanted, _by_alias(), cutoff=0.5)
        )
        hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
        raise InputError(
            "unknown device",
            where=where,
            value=repr(name),
            remedy=f"{hint}`kvsim devices` lists all; or describe yours in [device]",
        )
    table = _tables()[short]
    return Device(
        name=short,
        memory_bytes=round(table["memory_gib"] * GIB),
        bandwidth_bytes_per_s=round(table["bandwidth_gb_per_s"] * GIGA),
        fp16_flops=round(table["fp16_tflops"] * TERA),
        fp8_flops=round(table["fp8_tflops"] * TERA),
        fp32_flops=round(table["fp32_tflops"] * TERA),
        host_bytes_per_s=round(table["host_gb_per_s"] * GIGA),
        peer_bytes_per_s=round(table["peer_gb_per_s"] * GIGA),
        source=table["source"],
        **{name: table[name] for name in _BESIDE if name in table},
    )


def sized_device(name: str, memory_gib: float) -> Device:
    """The GPU of this name with `memory_gib` of memory.

    Of an unknown one the memory alone is known: its rates are 0, so it can be sized, and not timed.
    """
    memory_bytes = round(memory_gib * GIB)
    try:
        known = named_device(name)
    except InputError:
        source = "memory as given; rates unknown"
        return Device(name, memory_bytes, 0, 0, 0, 0, 0, 0, source)
    return replace(known, memory_bytes=memory_bytes, source=f"{known.source}; memory as given")


def own_figures(device: Device) -> list[str]:
    """Keys of [device] with figures that differ from those of the catalogue's GPU of this name."""
    if device.name not in _tables():
        return []
    known = named_device(device.name)
    return [
        key for key, field in _COMPUTES.items() if getattr(device, field) != getattr(known, field)
    ]
