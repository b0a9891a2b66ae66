"""The hardware of a recorded run, as a step time asks for it."""

from kvsim.device import named_device
from kvsim.model import named_model
from kvsim.observed.meta import RunMeta
from kvsim.step_time.options import Hardware

ENGINES = ("vllm", "sglang")


def hardware_of(meta: RunMeta, where: str = "") -> Hardware:
    """Its model, GPU and split, and its engine as far as meta.json says. InputError for a model or
    GPU that is not known; where: the beginning of the keys that it names.
    """
    name, _, version = meta.engine.lower().partition(" ")
    known = name in ENGINES
    return Hardware(
        named_model(meta.model, f"{where}model"),
        named_device(meta.gpu, f"{where}gpu"),
        meta.tensor_parallel_size,
        engine=name if known else None,
        engine_version=version if known and version else None,
    )
