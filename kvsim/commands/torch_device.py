"""The device that a command runs torch on."""

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.extras import need


def check_device(device: str) -> None:
    """Raise InputError unless torch is installed and `device` (cpu or cuda) is here."""
    need("torch", where="--device")
    import torch

    if device != "cpu" and not (device == "cuda" and torch.cuda.is_available()):
        raise InputError("no such device here", where="--device", value=device, remedy="use cpu")
