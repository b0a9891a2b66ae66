"""Test of the shipped kernel tables on this machine's GPU.

It times torch's matrix products and prefill attention, and kvsim's decode attention, at shapes
drawn from a table.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.random import PCG64, Generator
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention

from kvsim.backend.devices import device_of
from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.measure.timing import StepClock
from kvsim.backend.shape import Shape
from kvsim.backend.step import TokenSpan
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.transformer.runner import attend_of
from kvsim.step_time.kernels.tables import KernelTables

DTYPES = {
    "gemm": "bfloat16",
    "prefill_attention": "bfloat16/bfloat16",
    "decode_attention": "bfloat16",
}
BLOCK_SIZE = 16
COLD_BYTES = 128 << 20  # of weights that take turns: more than a chip's cache holds
MOST_TURNS = 64


class TableCase(NamedTuple):
    """A point of a kernel table. shape: n, k of a product; heads, KV heads, head_dim, window and
    batch of attention. x: rows of the product, or tokens per sequence. table_us: tabulated time.
    """

    kind: str
    shape: tuple[int, ...]
    x: int
    table_us: float

    @property
    def flop(self) -> int:
        """FLOP of the kernel: multiplications and additions."""
        if self.kind == "gemm":
            n, k = self.shape
            return 2 * self.x * n * k
        heads, _, dim, _, batch = self.shape
        rows = self.x if self.kind == "prefill_attention" else 2
        return 2 * batch * heads * dim * self.x * rows

    @property
    def num_bytes(self) -> int:
        """Bytes of the kernel's tensors in bfloat16."""
        if self.kind == "gemm":
            n, k = self.shape
            return 2 * (n * k + self.x * (n + k))
        heads, kv_heads, dim, _, batch = self.shape
        queries = self.x if self.kind == "prefill_attention" else 1
        return 2 * batch * dim * (2 * self.x * kv_heads + 2 * queries * heads)


class KernelTime(NamedTuple):
    """A case with its time measured here, the library that ran it, and the ratio measured /
    tabulated.
    """

    kind: str
    shape: str
    x: int
    table_us: float
    here_us: float
    ratio: float
    by: str


def drawn_cases(
    tables: KernelTables, count: int, seed: int, most_bytes: int, most_flop: int
) -> list[TableCase]:
    """About `count` random points by seed, equally many of each kind, within the limits on bytes
    and FLOP; of attention only full attention.
    """
    draw = Generator(PCG64(seed))
    found = []
    for kind, dtype in DTYPES.items():
        family = tables.required(kind, (dtype,))
        points = [
            case
            for shape, line in sorted(family.lines.items())
            if kind == "gemm" or (shape[3] == 0 and shape[2] in (64, 128))
            for case in (TableCase(kind, shape, round(x), us) for x, us in zip(*line, strict=True))
            if case.num_bytes <= most_bytes and case.flop <= most_flop
        ]
        chosen = draw.permutation(len(points))[: count // len(DTYPES)]
        found += [points[at] for at in sorted(chosen)]
    return found


def kernel_times(
    cases: Sequence[TableCase], device: str, clock: StepClock, attention: AttentionKind
) -> Iterator[KernelTime]:
    """Time each case here. If the device captures graphs, launches run one after another in a
    graph, so that launching is not timed.

    Weights of a product alternate, so that they are not in the GPU's cache.
    """
    for case in cases:
        works, by = _works(case, device, attention)
        seconds = _seconds(works, device, clock)
        here_us = 1e6 * seconds
        yield KernelTime(
            case.kind,
            "x".join(map(str, case.shape)),
            case.x,
            round(case.table_us, 3),
            round(here_us, 3),
            round(here_us / case.table_us, 4),
            by,
        )


def verdict(times: Sequence[KernelTime]) -> dict[str, dict[str, float]]:
    """Summary by kind: number of points, and the median, 10th and 90th percentile of the ratios."""
    found = {}
    for kind in DTYPES:
        ratios = [time.ratio for time in times if time.kind == kind]
        if ratios:
            low, middle, high = (float(np.percentile(ratios, at)) for at in (10, 50, 90))
            found[kind] = {"n": len(ratios), "p10": low, "p50": middle, "p90": high}
    return found


def _seconds(works: Sequence[Callable[[], Tensor]], device: str, clock: StepClock) -> float:
    """Mean seconds per call of the works, run one after the other on the device."""
    torch_device = device_of(device)

    def all_of_them() -> Tensor:
        return [work() for work in works][-1]

    if torch_device.captures:
        captured = torch_device.capture(all_of_them, torch_device.graph_pool())
        return clock.time(captured.replay).seconds / len(works)
    return clock.time(all_of_them).seconds / len(works)


def _works(
    case: TableCase, device: str, attention: AttentionKind
) -> tuple[list[Callable[[], Tensor]], str]:
    def normal(*sizes: int) -> Tensor:
        return torch.empty(sizes, dtype=torch.bfloat16, device=device).normal_()

    if case.kind == "gemm":
        n, k = case.shape
        turns = min(MOST_TURNS, max(1, -(-COLD_BYTES // (2 * n * k))))
        turns = turns if device_of(device).captures else 1
        rows, weights = normal(case.x, k), normal(turns, n, k)
        return [partial(linear, rows, weight) for weight in weights], "torch's linear"
    heads, kv_heads, dim, _, batch = case.shape
    if case.kind == "prefill_attention":
        query, key, value = (
            normal(batch, count, case.x, dim) for count in (heads, kv_heads, kv_heads)
        )
        work = partial(
            scaled_dot_product_attention, query, key, value, is_causal=True, enable_gqa=True
        )
        return [work], "torch's scaled_dot_product_attention"
    shape = Shape(1, heads * dim, heads, kv_heads, dim, 1, 1, "bfloat16")
    blocks = -(-case.x // BLOCK_SIZE)
    store = PagedStore(shape, 1 + batch * blocks, BLOCK_SIZE, device)
    store.pool.fill(0)
    dealt = 1 + Generator(PCG64(0)).permutation(batch * blocks)
    spans = [
        TokenSpan(str(at), [0], case.x - 1, dealt[at * blocks : (at + 1) * blocks].tolist())
        for at in range(batch)
    ]
    query, key, value = (normal(batch, count, dim) for count in (heads, kv_heads, kv_heads))
    attend = attend_of(attention, shape, store, spans, device)
    return [partial(attend, 0, query, key, value)], f"the backend's {attention}"
