"""Checks of the device on which a command runs torch, and its option `--attention`."""

from typing import Annotated

import typer

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.extras import need

Attention = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Attention of the backend: gather, sdpa or reference; on a GPU also triton, "
        "flash-attn or flashinfer, where installed.",
        show_default="the device's own",
    ),
]


def check_device(device: str) -> None:
    """Raise InputError unless torch is installed and this machine has the device (cpu or cuda)."""
    need("torch", where="--device")
    import torch

    if device != "cpu" and not (device == "cuda" and torch.cuda.is_available()):
        raise InputError("no such device here", where="--device", value=device, remedy="use cpu")
