"""The hardware of a recorded run, as step-time models need it."""

from dataclasses import replace

from kvsim.device import named_device
from kvsim.device.catalogue import GIGA
from kvsim.model import named_model
from kvsim.observed.meta import RunMeta
from kvsim.step_time.options import Hardware

ENGINES = ("vllm", "sglang")


def hardware_of(meta: RunMeta, where: str = "") -> Hardware:
    """Hardware for the model, GPU, parallel split and engine that meta.json gives.

    InputError for an unknown model or GPU; where is the prefix of the keys in the message, such as
    `meta.json.`.
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
