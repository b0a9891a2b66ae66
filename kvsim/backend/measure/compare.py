"""What the ways of keeping KV cost on a device: indirection, growing, swapping."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.random import PCG64, Generator

from kvsim.backend.measure.timing import Clock
from kvsim.backend.shape import Shape
from kvsim.backend.step import Span
from kvsim.backend.stores.contiguous import ContiguousStore
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.runner import Runner

Rows = list[dict[str, float]]


def indirection(
    decoder: Decoder, clock: Clock, cases: Sequence[tuple[int, int]], block_size: int
) -> Rows:
    """The same decode step (sequences, context) on blocks dealt at random and on one buffer each.

    Rows: sequences, context, paged_s, contiguous_s; tokens and tables are on the device before.
    """
    shape, device = decoder.shape, decoder.device
    pages = max(num * -(-context // block_size) for num, context in cases)
    paged = PagedStore(shape, pages, block_size, device)
    contiguous = ContiguousStore(shape, pages * block_size, device)
    dealt = Generator(PCG64(0)).permutation(pages)
    rows = []
    for num, context in cases:
        own = -(-context // block_size)
        spans = [
            Span(
                str(at),
                [at % shape.vocab],
                context - 1,
                blocks=dealt[at * own : (at + 1) * own].tolist(),
                slot=at * own * block_size,
            )
            for at in range(num)
        ]
        row: dict[str, float] = {"sequences": num, "context": context}
        for name, store in (("paged_s", paged), ("contiguous_s", contiguous)):
            store.pool.fill(0)
            runner = Runner(decoder, store)
            prepared = runner.prepare(spans)
            row[name] = clock.time(lambda: runner.run(prepared)).seconds  # noqa: B023 - used at once
        rows.append(row)
    return rows


def growth(shape: Shape, device: str, clock: Clock, tokens: Sequence[int]) -> Rows:
    """A buffer of so many tokens doubles: allocate, copy, free, by torch's allocator.

    Rows: tokens, bytes (copied), grow_s, allocate_s (allocating and freeing alone).
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


def swap(shape: Shape, clock: Clock, tokens: Sequence[int], block_size: int) -> Rows:
    """Scattered blocks of a GPU's pool to pinned host memory: gathered and in one copy, and block
    by block, layer by layer. Rows: tokens, bytes, copies, at_once_s, one_by_one_s.
    """
    most = -(-max(tokens) // block_size)
    store = PagedStore(shape, 2 * most, block_size, "cuda")
    store.pool.fill(0)
    blocks = store.pool.rows.view(shape.layers, 2, 2 * most, -1)
    host = torch.empty((shape.layers, 2, most, blocks.shape[3]), dtype=blocks.dtype).pin_memory()
    dealt = Generator(PCG64(0)).permutation(2 * most)
    rows = []
    for count in tokens:
        ids: np.ndarray[tuple[int], np.dtype[np.int64]] = dealt[: -(-count // block_size)]
        there = torch.from_numpy(ids).to("cuda")
        target = torch.empty_like(host[:, :, : len(ids)]).pin_memory()

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


def compare_stores(shape: Shape, device: str, clock: Clock, block_size: int) -> dict[str, Rows]:
    """All of it, at sizes for the device; the swap on a GPU alone. On a CPU torch keeps to one
    thread from here on: the clock sees no other.
    """
    on_gpu = device.startswith("cuda")
    if not on_gpu:
        torch.set_num_threads(1)
    contexts = (512, 2048, 8192) if on_gpu else (128, 1024)
    cases = [(num, context) for num in (1, 8, 32) for context in contexts]
    found = {
        "indirection": indirection(Decoder(shape, device=device), clock, cases, block_size),
        "growth": growth(shape, device, clock, (256, 512, 1024, 2048, 4096)),
    }
    if on_gpu:
        found["swap"] = swap(shape, clock, (256, 2048), block_size)
    return found
