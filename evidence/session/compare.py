"""Costs of KV layouts on a device: paged indirection, growing a buffer, swapping to the host."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.random import PCG64, Generator

from kvsim.backend.devices import device_of
from kvsim.backend.measure.timing import StepClock
from kvsim.backend.shape import Shape
from kvsim.backend.step import TokenSpan
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.stores.pooled import PooledStore, StoreName, pooled_store
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.runner import DecoderRunner

Rows = list[dict[str, float]]


def indirection(
    decoder: Decoder, clock: StepClock, cases: Sequence[tuple[int, int]], block_size: int
) -> Rows:
    """Time the same decode step on randomly placed blocks and on one contiguous buffer per
    sequence.

    cases: (sequences, context in tokens). Rows: sequences, context, paged_s, contiguous_s. Tokens
    and block tables are already on the device.
    """
    shape, device = decoder.shape, decoder.device
    pages = 1 + max(num * -(-context // block_size) for num, context in cases)
    rows: Rows = [{"sequences": num, "context": context} for num, context in cases]
    for name in ("paged_s", "contiguous_s"):  # one store at a time: each takes what it can get
        kept: StoreName = "paged" if name == "paged_s" else "contiguous"
        store = pooled_store(kept, shape, pages, block_size, device)
        store.pool.fill(0)
        for row, seconds in zip(
            rows, _decode_times(decoder, store, clock, cases, block_size), strict=True
        ):
            row[name] = seconds
        del store
        device_of(device).release_unused()
    return rows


def _decode_times(
    decoder: Decoder,
    store: PooledStore,
    clock: StepClock,
    cases: Sequence[tuple[int, int]],
    block_size: int,
) -> Iterator[float]:
    """Seconds of one decode step for each case. On a device that captures steps it is a replay, so
    that the host's launches are not timed.
    """
    blocks = store.pool.num_slots // block_size
    dealt = 1 + Generator(PCG64(0)).permutation(blocks - 1)
    runner = DecoderRunner(decoder, store)
    if device_of(decoder.device).captures:
        runner.with_graphs(max(context for _, context in cases), ([1] * num for num, _ in cases))
    for num, context in cases:
        own = -(-context // block_size)
        spans = [
            TokenSpan(
                str(at),
                [at % decoder.shape.vocab],
                context - 1,
                blocks=dealt[at * own : (at + 1) * own].tolist(),
                slot=at * own * block_size,
            )
            for at in range(num)
        ]
        graph = runner.graphs and runner.graphs.find(spans)
        work = graph.load(spans).replay if graph else partial(runner.run, runner.prepare(spans))
        yield clock.time(work).seconds


def growth(shape: Shape, device: str, clock: StepClock, tokens: Sequence[int]) -> Rows:
    """Time doubling a buffer of each number of tokens by torch's allocator: allocate, copy, free.

    Rows: tokens, bytes copied, grow_s, allocate_s (allocating and freeing only).
    """
    dtype = getattr(torch, shape.dtype)
    rows = []
    for count in tokens:
        old = torch.empty((shape.layers, 2, count, shape.kv_dim), dtype=dtype, device=device)
        old.normal_()

        def allocate(old: torch.Tensor = old, count: int = count) -> torch.Tensor:
            return old.new_empty((shape.layers, 2, 2 * count, shape.kv_dim))

        def grow(old: torch.Tensor = old, count: int = count) -> None:
            allocate(old, count)[:, :, :count].copy_(old)

        rows.append(
            {
                "tokens": count,
                "bytes": old.nbytes,
                "grow_s": clock.time(grow).seconds,
                "allocate_s": clock.time(allocate).seconds,
            }
        )
    return rows


def swap(
    shape: Shape, device: str, clock: StepClock, tokens: Sequence[int], block_size: int
) -> Rows:
    """Time copying scattered blocks to host memory (pinned for a GPU): gathered into one copy, and
    one copy per block and layer. Rows: tokens, bytes, copies, at_once_s, one_by_one_s.
    """
    most = -(-max(tokens) // block_size)
    store = PagedStore(shape, 2 * most, block_size, device)
    pins = device_of(device).pins
    store.pool.fill(0)
    blocks = store.pool.rows.view(shape.layers, 2, 2 * most, -1)
    host = torch.empty(
        (shape.layers, 2, most, blocks.shape[3]), dtype=blocks.dtype, pin_memory=pins
    )
    dealt = Generator(PCG64(0)).permutation(2 * most)
    rows = []
    for count in tokens:
        ids: np.ndarray[tuple[int], np.dtype[np.int64]] = dealt[: -(-count // block_size)]
        there = torch.from_numpy(ids).to(device)
        target = torch.empty(
            (shape.layers, 2, len(ids), blocks.shape[3]), dtype=blocks.dtype, pin_memory=pins
        )

        def at_once(there: torch.Tensor = there, target: torch.Tensor = target) -> None:
            target.copy_(blocks.index_select(2, there), non_blocking=True)

        listed: list[int] = ids.tolist()

        def one_by_one(ids: list[int] = listed) -> None:
            for layer in range(shape.layers):
                for part in (0, 1):
                    for row, block in enumerate(ids):
                        host[layer, part, row].copy_(blocks[layer, part, block], non_blocking=True)

        rows.append(
            {
                "tokens": count,
                "bytes": target.nbytes,
                "copies": shape.layers * 2 * len(ids),
                "at_once_s": clock.time(at_once).seconds,
                "one_by_one_s": clock.time(one_by_one).seconds,
            }
        )
    return rows


def compare_stores(shape: Shape, device: str, clock: StepClock, block_size: int) -> dict[str, Rows]:
    """Compare the KV stores at sizes that fit the device's free memory.

    On a CPU torch uses a single thread from here on, as the clock measures only one.
    """
    on_gpu = device.startswith("cuda")
    if not on_gpu:
        torch.set_num_threads(1)
    contexts = (512, 2048, 8192) if on_gpu else (128, 1024)
    decoder = Decoder(shape, device=device)
    free = device_of(device).free_bytes() - device_of(device).spare_bytes
    room = free // shape.kv_bytes_per_token
    cases = [(num, context) for num in (1, 8, 32) for context in contexts if num * context <= room]
    found = {"indirection": indirection(decoder, clock, cases, block_size)}
    del decoder
    device_of(device).release_unused()
    found["growth"] = growth(shape, device, clock, (256, 512, 1024, 2048, 4096))
    found["swap"] = swap(shape, device, clock, (256, 2048), block_size)
    return found
