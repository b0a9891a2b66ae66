"""The kinds of attention of the backend, by name. A calibration says which one it measured."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.transformer.between import Between, FusedBetween, PlainBetween
from kvsim.backend.transformer.tiles import Launch
from kvsim.plumbing.errors import InputError


class AttentionForm(NamedTuple):
    """A kind of attention.

    kernel: a description for calibrations. launch: gives the kernel; None for one that gathers K
    and V first. between: the work between products. package: imported by it, besides torch.
    """

    kernel: str
    launch: Callable[[], Launch | None]
    between: Callable[[], Between] = PlainBetween
    package: str | None = None


def _triton() -> Launch:
    from kvsim.backend.transformer import triton_attention

    return triton_attention.launch


def _reference() -> Launch:
    from kvsim.backend.transformer import reference

    return reference.launch


ATTENTIONS: dict[AttentionKind, AttentionForm] = {
    "gather": AttentionForm(
        "torch's scaled_dot_product_attention, span by span", launch=lambda: None
    ),
    "triton": AttentionForm(
        "kvsim's own: split-KV decode, ragged prefill, in blocks and buffers",
        launch=_triton,
        between=FusedBetween,
        package="triton",
    ),
    "reference": AttentionForm(
        "kvsim's own in plain torch, in place of the GPU's", launch=_reference
    ),
}


def attention_kind(name: str | None, device: str) -> AttentionKind | None:
    """The kind of this name on "cpu" or "cuda" (None: the device's own); InputError names those
    that there are.
    """
    if name is None:
        return None
    for kind, form in ATTENTIONS.items():
        if kind == name:
            if kind == "triton" and device == "cpu":
                raise InputError("Triton's kernels need a GPU", where="--attention", value=name,
                                 remedy="gather, or reference")  # fmt: skip
            if form.package is not None and find_spec(form.package) is None:
                raise InputError(f"needs {form.package}, not installed here", where="--attention",
                                 value=name)  # fmt: skip
            return kind
    raise InputError("no such attention", where="--attention", value=name,
                     remedy=f"one of: {', '.join(ATTENTIONS)}")  # fmt: skip
