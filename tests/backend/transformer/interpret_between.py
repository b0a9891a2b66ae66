"""Run whole decoder steps by the GPU's kernels under Triton's interpreter, on a CPU; print their
errors against float64, and the launches of a layer, as JSON.

Run as a program with TRITON_INTERPRET=1: it must be set before the kernels are imported.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from kvsim.backend.shape import Shape
from kvsim.backend.step import TokenSpan
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.transformer import fused, kernel, tiles, triton_between
from kvsim.backend.transformer.between import FusedBetween, PlainBetween
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.products import FP8_MOST
from kvsim.backend.transformer.rope import rotate, turns
from kvsim.backend.transformer.runner import DecoderRunner, attend_of
from kvsim.backend.transformer.weights import DecoderWeights, LayerWeights

KERNELS = {
    "add_norm": fused,
    "gate": fused,
    "narrow": fused,
    "rotate_write": fused,
    "attend": kernel,
    "combine": kernel,
}
# They make tensors, or views of some, and launch nothing.
NO_LAUNCH = ("empty", "empty_like", "new_empty", "empty_strided")
# A mixed step: a chunk behind a prefix, and a decoding sequence.
FIRST = [TokenSpan("a", range(4), 0, (3, 5)), TokenSpan("b", range(11), 0, (1, 7, 2))]
STEP = [TokenSpan("a", [5, 6, 7], 4, (3, 5)), TokenSpan("b", [4], 11, (1, 7, 2))]


class Launches(TorchDispatchMode):
    """Counts torch operations by name while the mode is active."""

    def __init__(self) -> None:
        super().__init__()
        self.count = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if not func.is_view and name not in NO_LAUNCH:
            self.count[name] += 1
        return func(*args, **(kwargs or {}))


class Counted:
    """A Triton kernel that counts its launches, without operations of Triton's interpreter."""

    def __init__(self, name: str, function: Any, count: Counter[str]) -> None:
        self._name, self._function, self._count = name, function, count

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> None:
            self._count[self._name] += 1
            with _disable_current_modes():
                self._function[grid](*args, **kwargs)

        return launch


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Context that counts all launches of torch and Triton by name."""
    mode = Launches()
    before = {name: getattr(module, name) for name, module in KERNELS.items()}
    for name, module in KERNELS.items():
        setattr(module, name, Counted(name, before[name], mode.count))
    try:
        with mode:
            yield mode.count
    finally:
        for name, module in KERNELS.items():
            setattr(module, name, before[name])


def in_dtype(weights: DecoderWeights, dtype: torch.dtype) -> DecoderWeights:
    """The weights converted to another dtype."""

    def converted(layer: LayerWeights) -> LayerWeights:
        parts = {each.name: getattr(layer, each.name) for each in fields(layer)}
        return replace(
            layer, **{name: part.to(dtype) for name, part in parts.items() if part is not None}
        )

    return DecoderWeights(
        weights.embedding.to(dtype),
        tuple(map(converted, weights.layers)),
        weights.norm.to(dtype),
        weights.unembedding.to(dtype),
    )


def logits(decoder: Decoder, attention: Any) -> Tensor:
    """Logits of a mixed step: decoding sequences and a prompt chunk."""
    runner = DecoderRunner(decoder, PagedStore(decoder.shape, 9, 4), attention)
    runner.step(FIRST)
    return runner.step(STEP)


def launches(shape: Shape) -> dict[str, int]:
    """Launches of one layer in a decode step: the difference between decoders of n + 1 and n
    layers.
    """
    found = []
    for layers in (1, 2):
        decoder = Decoder(replace(shape, layers=layers))
        runner = DecoderRunner(decoder, PagedStore(decoder.shape, 9, 4), "triton")
        runner.step([FIRST[1]])
        prepared = runner.prepare([STEP[1]], splits=2)
        with counting() as count:
            runner.run(prepared)
        found.append(Counter(count))
    return dict(found[1] - found[0])


def between_errors(dtype: torch.dtype) -> dict[str, float]:
    """Largest error of each fused kernel against plain torch in float64."""
    numbers = torch.Generator().manual_seed(2)
    plain, fast = PlainBetween(), FusedBetween()
    stream, delta = (torch.randn(5, 80, generator=numbers).to(dtype) for _ in range(2))
    weight = torch.randn(80, generator=numbers).to(dtype)
    gate_up = torch.randn(5, 2 * 1500, generator=numbers).to(dtype)
    found = {}
    for name, added in (("norm", None), ("add_norm", delta)):
        ours = fast.add_norm(stream, added, weight)
        wide = None if added is None else added.double()
        exact = plain.add_norm(stream.double(), wide, weight.double())
        found[name] = max(error(one, other) for one, other in zip(ours, exact, strict=True))
    found["gate"] = error(fast.gate(gate_up), plain.gate(gate_up.double()))
    # Without the rounding to FP8, in which the interpreter loses carries (127.6 becomes 64).
    rows = gate_up[:, :80]
    before, triton_between.FP8 = triton_between.FP8, torch.float32
    narrow, scale = fast.narrow(rows)
    triton_between.FP8 = before
    most = rows.double().abs().amax(1, keepdim=True)
    found["narrow"] = error(narrow, rows.double() / most * FP8_MOST)
    found["scale"] = error(scale, most / FP8_MOST)
    return found


def rotate_errors(dtype: torch.dtype, shape: Shape) -> dict[str, float]:
    """Errors of rotated queries, and of keys and values in the cache, against float64."""
    numbers = torch.Generator().manual_seed(3)
    query, key, value = (
        torch.randn(11, heads, shape.head_dim, generator=numbers).to(dtype)
        for heads in (shape.heads, shape.kv_heads, shape.kv_heads)
    )
    word = str(dtype).removeprefix("torch.")
    store = PagedStore(replace(shape, layers=1, dtype=word), 9, 4)
    turned: list[Tensor] = []

    class Attending:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **_: turned.append(args[0])

    before, kernel.attend = kernel.attend, Attending()
    tiles_before, tiles.PREFILL_PROGRAMS = tiles.PREFILL_PROGRAMS, 1
    try:
        attend_of("triton", store.shape, store, [FIRST[1]], "cpu")(0, query, key, value)
    finally:
        kernel.attend, tiles.PREFILL_PROGRAMS = before, tiles_before
    exact = turns(torch.arange(11), shape.head_dim, torch.float64)
    keys, values = store.read(0, 0)
    return {
        "turned query": error(turned[0], rotate(query.double(), exact)),
        "cached key": error(keys, rotate(key.double(), exact)),
        "cached value": error(values, value.double()),
    }


def error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).abs().max() / exact.abs().max())


if __name__ == "__main__":
    shapes = {
        "llama": Shape(2, 48, 6, 2, 16, 40, 50),
        "fp8": Shape(2, 48, 6, 2, 16, 48, 50, weights="fp8"),
        # All at once: what is wrong with one of them is wrong with all. The interpreter is slow.
        "qwen": Shape(2, 48, 3, 1, 32, 40, 50, qkv_bias=True, qk_norm=True, window=5),
    }
    tiles.DECODE_PROGRAMS = tiles.PREFILL_PROGRAMS = 8  # few splits: the interpreter is slow
    errors: dict[str, float] = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        word = str(dtype).removeprefix("torch.")
        errors |= {f"{name} {word}": each for name, each in between_errors(dtype).items()}
        for name, each in rotate_errors(dtype, shapes["llama"]).items():
            errors[f"{name} {word}"] = each
        for name, shape in shapes.items():
            if shape.weights:
                continue  # test_products.py has them against float64; here they are counted
            # Products of bfloat16 are wrong in the interpreter; those of attention are in there.
            if dtype == torch.bfloat16 or (dtype != torch.float32 and name != "llama"):
                continue
            wide = Decoder(replace(shape, dtype="float64"))
            narrow = replace(shape, dtype=word)
            own = Decoder(narrow, in_dtype(wide.weights, dtype))
            # The float64 reference has the very numbers that the narrow weights hold.
            exact = logits(Decoder(wide.shape, in_dtype(own.weights, torch.float64)), "gather")
            errors[f"{name} decoder {word}"] = error(logits(own, "triton"), exact)
    counted = {name: launches(shapes[name]) for name in ("llama", "qwen", "fp8")}
    json.dump(
        {"errors": errors, "launches": counted},
        sys.stdout,
    )
