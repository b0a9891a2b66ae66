"""Run the GPU kernels under Triton's interpreter, on a CPU; print their errors as JSON.

Run as a program with TRITON_INTERPRET=1: it must be set before the kernels are imported. Its
argument is a JSON list of cases: heads, KV heads, kind of store, dtype, programs.
"""

import json
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from evidence.prove.recompute import RecomputeStore
from kvsim.backend.shape import Shape
from kvsim.backend.step import Batch, TokenSpan
from kvsim.backend.stores.buffers import BufferStore
from kvsim.backend.stores.contiguous import ContiguousStore
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.stores.store import TensorStore
from kvsim.backend.transformer import tiles, triton_attention
from kvsim.backend.transformer.attention import GatherAttention
from kvsim.backend.transformer.decoder import Attend

DIM = 16
# A decoding sequence, a whole prompt, a chunk behind a prefix: tokens, start.
STEP = {"decode": (1, 37), "prompt": (17, 0), "chunk": (5, 4)}
PLACES = {
    "paged": {
        "decode": {"blocks": tuple(range(7, 30, 2))},
        "prompt": {"blocks": (0, 40, 2, 4, 44)},
        "chunk": {"blocks": (41, 42, 43)},
    },
    "contiguous": {"decode": {"slot": 3}, "prompt": {"slot": 100}, "chunk": {"slot": 60}},
    "buffers": {
        "decode": {"capacity": 48},
        "prompt": {"capacity": 32},
        "chunk": {"capacity": 16},
    },
    "recompute": {"decode": {}, "prompt": {}, "chunk": {}},
}


def store_of(kind: str, shape: Shape) -> TensorStore:
    if kind == "paged":
        return PagedStore(shape, 48, 4)
    if kind == "contiguous":
        return ContiguousStore(shape, 192)
    return BufferStore(shape) if kind == "buffers" else RecomputeStore()


def attended(attention: Callable[..., Attend], kind: str, shape: Shape) -> Tensor:
    """Fill the cache through the attention under test, then one mixed step on it."""
    store = store_of(kind, shape)
    numbers = torch.Generator().manual_seed(1)

    def draw(tokens: int, heads: int) -> Tensor:
        drawn = torch.randn(tokens, heads, DIM, generator=numbers)
        return drawn.to(getattr(torch, shape.dtype))

    def step(spans: list[TokenSpan]) -> Tensor:
        batch = Batch.pack(spans)
        store.begin(batch)
        tokens = batch.begin[-1]
        query, key = draw(tokens, shape.heads), draw(tokens, shape.kv_heads)
        return attention(shape, store, batch)(0, query, key, draw(tokens, shape.kv_heads))

    places = PLACES[kind]
    if kind == "recompute":
        return step(
            [TokenSpan(name, [1] * (new + prior), 0) for name, (new, prior) in STEP.items()]
        )
    step([TokenSpan(at, [1] * n, 0, **places[at]) for at, (_, n) in STEP.items() if n])
    return step([TokenSpan(at, [1] * new, n, **places[at]) for at, (new, n) in STEP.items()])


if __name__ == "__main__":
    errors = {}
    for heads, kv_heads, kind, dtype, programs in json.loads(sys.argv[1]):
        tiles.DECODE_PROGRAMS = tiles.PREFILL_PROGRAMS = programs
        shape = Shape(1, 64, heads, kv_heads, DIM, 96, 50, dtype)
        exact = attended(GatherAttention, kind, shape)
        found = attended(partial(tiles.KernelAttention, triton_attention.launch), kind, shape)
        key = f"{kind} {heads}/{kv_heads} {dtype} {programs}"
        errors[key] = float((found - exact).abs().max() / exact.abs().max())
    json.dump(errors, sys.stdout)
