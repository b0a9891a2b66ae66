"""The hardware of a recorded run, as a step time asks for it."""

from dataclasses import replace

from kvsim.device import named_device
from kvsim.device.catalogue import GIGA
from kvsim.model import named_model
from kvsim.observed.meta import RunMeta
from kvsim.step_time.options import Hardware

ENGINES = ("vllm", "sglang")


def hardware_of(meta: RunMeta, where: str = "") -> Hardware:
    """The meta's model, GPU and split, and its engine as far as meta.json says.

    InputError for a model or GPU that is not known; where: the beginning of the keys that it names.
    """
    device = named_device(meta.gpu, f"{where}gpu")
    if meta.peer_gb_per_s is not None:
        device = replace(device, peer_bytes_per_s=round(meta.peer_gb_per_s * GIGA))
    name, _, version = meta.engine.lower().partition(" ")
    known = name in ENGINES
    return Hardware(
        named_model(meta.model, f"{where}model"),
        device,
        meta.tensor_parallel_size,
        engine=name if known else None,
        engine_version=version if known and version else None,
    )
