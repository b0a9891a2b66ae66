"""Measure copies of blocks: from the device to host memory and back, and to files and back."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from numpy.random import PCG64, Generator
from torch import Tensor

from kvsim.backend.devices import device_of
from kvsim.backend.measure.timing import clock_of
from kvsim.backend.shape import DTYPE_BYTES, Shape
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.tiers.block_files import BlockFiles
from kvsim.backend.tiers.host_slots import HostSlots
from kvsim.plumbing.errors import InputError, InvariantError

Way = Literal["store", "load", "write", "read"]
"""To host memory, from host memory, to a file, from a file."""

CPU_BUDGET_S = 0.1
FILE_REPEATS = 7
LARGEST_FILE_BYTES = 64 << 20


class CopySample(NamedTuple):
    """The median time of copies of `num_bytes` in one direction."""

    way: Way
    num_bytes: int
    seconds: float


def host_copies(
    shape: Shape, device: str, *, block_size: int, most_bytes: int, seed: int
) -> list[CopySample]:
    """Copies of 1, 2, 4, ... blocks, up to `most_bytes`, between a paged store and host memory.

    Blocks of the device and slots of the host are drawn at random. The blocks of a copy are
    gathered on the device first, and each run of successive slots is one copy over the link.
    InvariantError where a block comes back with other content. InputError where `most_bytes` does
    not hold one block, or the device does not hold it.
    """
    block_bytes = block_size * shape.kv_bytes_per_token
    room_bytes = device_of(device).free_bytes() - device_of(device).spare_bytes
    # The device holds the pool and what is gathered of it; a CPU the host's pool too.
    num_blocks = min(most_bytes, room_bytes // 4) // block_bytes
    if num_blocks < 1:
        raise InputError(
            "there is no room for copies of one block",
            where="--most-mib",
            value=f"{min(most_bytes, room_bytes // 4):,} bytes",
            limit=f"at least {block_bytes:,} bytes",
            remedy="raise it, or give a smaller --block-size",
        )
    store = PagedStore(shape, num_blocks, block_size, device)
    store.pool.fill(seed)
    width = block_size * shape.kv_dim
    pool = HostSlots(num_blocks, shape.layers, width, getattr(torch, shape.dtype), device)
    draw = Generator(PCG64(seed))
    blocks, slots = draw.permutation(num_blocks).tolist(), draw.permutation(num_blocks).tolist()
    clock = clock_of(device, CPU_BUDGET_S)
    found = []
    for count in _ladder(num_blocks):
        ours, theirs = blocks[:count], slots[:count]
        before = store.gather_blocks(ours)
        staged = torch.empty_like(before)

        def to_host(ours: list[int] = ours, theirs: list[int] = theirs,
                    staged: Tensor = staged) -> None:  # fmt: skip
            pool.store(theirs, store.gather_blocks(ours, staged))

        def to_device(ours: list[int] = ours, theirs: list[int] = theirs,
                      staged: Tensor = staged) -> None:  # fmt: skip
            pool.load(theirs, staged)
            store.scatter_blocks(ours, staged)

        num_bytes = count * block_bytes
        found.append(CopySample("store", num_bytes, clock.time(to_host).seconds))
        found.append(CopySample("load", num_bytes, clock.time(to_device).seconds))
        if not torch.equal(before, store.gather_blocks(ours)):
            raise InvariantError(f"{count} blocks came back from host memory with other content")
    return found


def file_copies(
    shape: Shape, folder: Path, *, block_size: int, seed: int
) -> tuple[list[CopySample], bool]:
    """Copies of 1, 2, 4 and more blocks (to 64 MiB) to files in `folder` and back, by one thread.
    The second result says whether these bypassed the page cache. Times are wall time. All files are
    removed.
    """
    block_bytes = block_size * shape.kv_bytes_per_token
    generator = torch.Generator().manual_seed(seed)
    found, direct = list[CopySample](), True
    for count in _ladder(max(LARGEST_FILE_BYTES // block_bytes, 1)):
        num_bytes = count * block_bytes
        elements = num_bytes // DTYPE_BYTES[shape.dtype]
        chunk = torch.empty(elements, dtype=getattr(torch, shape.dtype)).normal_(
            generator=generator
        )
        files = BlockFiles(folder, num_bytes)
        direct &= files.direct
        names = [f"kvsim-{num_bytes}-{turn}" for turn in range(FILE_REPEATS)]
        written, read = list[float](), list[float]()
        try:
            for name in names:
                start = time.perf_counter()
                files.write(name, chunk)
                written.append(time.perf_counter() - start)
            for name in names:
                start = time.perf_counter()
                again = files.read(name, chunk)
                read.append(time.perf_counter() - start)
                if not torch.equal(again, chunk):
                    raise InvariantError(f"the file {name} came back with other content")
        finally:
            files.remove_all(names)
        found.append(CopySample("write", num_bytes, sorted(written)[FILE_REPEATS // 2]))
        found.append(CopySample("read", num_bytes, sorted(read)[FILE_REPEATS // 2]))
    return found, direct


def _ladder(most: int) -> Iterator[int]:
    """Powers of two below `most`, then `most`: numbers of blocks to copy."""
    count = 1
    while count < most:
        yield count
        count *= 2
    yield most
