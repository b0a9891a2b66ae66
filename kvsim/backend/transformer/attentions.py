"""The kinds of attention of the backend, by name. A calibration says which one it measured."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Literal, NamedTuple

from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.shape import Shape
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.stores.store import TensorStore
from kvsim.backend.transformer.between import Between, FusedBetween, PlainBetween
from kvsim.backend.transformer.tiles import Launch
from kvsim.plumbing.errors import InputError

BLOCK_SIZE = 16  # slots, where no kind asks for more


class AttentionForm(NamedTuple):
    """A kind of attention with its kernels and requirements.

    kernel: its name in calibrations. launch: returns the kernel; None for attention that gathers K
    and V first. together: attention that gathers computes all decoding sequences in one call.
    between: how norms, RoPE and the activation are computed between the matrix products. packages:
    imported packages besides torch; a calibration records the version of the first. devices: device
    types that it runs on. captures: steps that it lets CUDA graphs capture: none, decode or all.

    dtypes, head_dims: those that it computes; None for any. block_size: the KV block size must be a
    multiple of it; None if it also reads contiguous K and V buffers.
    """

    kernel: str
    launch: Callable[[], Launch | None]
    together: bool = False
    between: Callable[[], Between] = PlainBetween
    packages: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu", "cuda")
    captures: Literal["no", "decode", "all"] = "all"
    dtypes: tuple[str, ...] | None = None
    head_dims: tuple[int, ...] | None = None
    block_size: int | None = None

    def check(self, kind: AttentionKind, shape: Shape, store: TensorStore) -> None:
        """InputError where it does not compute this shape, or does not read this store."""
        where = f"attention {kind}"
        if self.dtypes is not None and shape.dtype not in self.dtypes:
            raise InputError("is not computed in this dtype", where=where, value=shape.dtype,
                             remedy=f"one of: {', '.join(self.dtypes)}")  # fmt: skip
        if self.head_dims is not None and shape.head_dim not in self.head_dims:
            raise InputError("has no kernel for this head_dim", where=where, value=shape.head_dim,
                             remedy=f"one of: {', '.join(map(str, self.head_dims))}")  # fmt: skip
        if self.block_size is None:
            return
        if not isinstance(store, PagedStore):
            raise InputError("reads blocks alone", where=where,
                             remedy="paged memory, or triton")  # fmt: skip
        if store.block_size % self.block_size:
            raise InputError("reads larger blocks", where=where, value=f"{store.block_size} slots",
                             limit=f"a multiple of {self.block_size}",
                             remedy=f"block_size = {self.block_size}")  # fmt: skip


def _triton() -> Launch:
    from kvsim.backend.transformer import triton_attention

    return triton_attention.launch


def _reference() -> Launch:
    from kvsim.backend.transformer import reference

    return reference.launch


def _flash_attn() -> Launch:
    from kvsim.backend.transformer.libraries import flash_attn

    return flash_attn()


def _flashinfer() -> Launch:
    from kvsim.backend.transformer.libraries import FlashInfer

    return FlashInfer()


HALVES = ("bfloat16", "float16")
ATTENTIONS: dict[AttentionKind, AttentionForm] = {
    "gather": AttentionForm(
        "torch's scaled_dot_product_attention, span by span",
        launch=lambda: None,
        captures="no",
    ),
    "sdpa": AttentionForm(
        "torch's scaled_dot_product_attention, decoding spans gathered and in one call",
        launch=lambda: None,
        together=True,
        captures="no",
    ),
    "triton": AttentionForm(
        "kvsim's own: split-KV decode, ragged prefill, in blocks and buffers",
        launch=_triton,
        between=FusedBetween,
        packages=("triton",),
        devices=("cuda",),
    ),
    # The limits are those of flash_attn 2 and of flashinfer's own kernels (its backend "fa2").
    "flash-attn": AttentionForm(
        "flash_attn: with_kvcache for decode, varlen_func else; graphs of decode steps alone",
        launch=_flash_attn,
        between=FusedBetween,
        packages=("flash_attn", "triton"),
        devices=("cuda",),
        captures="decode",
        dtypes=HALVES,
        head_dims=tuple(range(8, 257, 8)),
        block_size=256,
    ),
    "flashinfer": AttentionForm(
        "flashinfer: paged decode and paged prefill, planned once a step; no graphs",
        launch=_flashinfer,
        between=FusedBetween,
        packages=("flashinfer", "triton"),
        devices=("cuda",),
        captures="no",
        dtypes=HALVES,
        head_dims=(64, 128, 256),
        block_size=1,
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
            if device not in form.devices:
                others = [each for each, other in ATTENTIONS.items() if device in other.devices]
                raise InputError("its kernels need a GPU", where="--attention", value=name,
                                 remedy=f"one of: {', '.join(others)}")  # fmt: skip
            missing = [package for package in form.packages if find_spec(package) is None]
            if missing:
                raise InputError(f"needs {', '.join(missing)}, not installed here",
                                 where="--attention", value=name)  # fmt: skip
            return kind
    raise InputError("no such attention", where="--attention", value=name,
                     remedy=f"one of: {', '.join(ATTENTIONS)}")  # fmt: skip


def block_size_of(kind: AttentionKind) -> int:
    """Slots of a block in a measurement with this attention."""
    return max(BLOCK_SIZE, ATTENTIONS[kind].block_size or 0)
