"""Blocks of K and V stored in host memory or a file and loaded into other blocks."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvsim.backend.shape import Shape
from kvsim.backend.step import TokenSpan
from kvsim.backend.stores.paged import PagedStore
from kvsim.backend.tiers.block_files import BlockFiles
from kvsim.backend.tiers.host_slots import HostSlots
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.runner import DecoderRunner
from kvsim.plumbing.errors import InputError, InvariantError

SHAPE = Shape(3, 32, 4, 2, 8, 48, 50)
BLOCK_SIZE = 4
WIDTH = BLOCK_SIZE * SHAPE.kv_dim


def host_pool(num_slots: int) -> HostSlots:
    return HostSlots(num_slots, SHAPE.layers, WIDTH, torch.float32, "cpu")


@pytest.mark.parametrize("through_files", [False, True])
def test_loaded_blocks_give_the_same_logits(through_files: bool, tmp_path: Path) -> None:
    """The device's blocks are overwritten with NaN before other blocks are loaded."""
    prompt, more = [7, 3, 41, 9, 22, 5, 18, 2, 33, 14], [6, 27]
    store = PagedStore(SHAPE, 12, BLOCK_SIZE)
    runner = DecoderRunner(Decoder(SHAPE), store)
    runner.step([TokenSpan("a", prompt, 0, [3, 7, 2])])
    # The tokens behind the full blocks are computed again, as an engine does after a hit.
    rest = [*prompt[8:], *more]
    expected = runner.step([TokenSpan("a", rest, 8, [3, 7, 2])])

    pool = host_pool(8)
    pool.store([5, 0], store.gather_blocks([3, 7]))
    if through_files:
        files = BlockFiles(tmp_path, 2 * pool.slot_bytes)
        there = pool.rows[[5, 0]]
        files.write("chunk", there)
        pool.rows.fill_(torch.nan)
        pool.rows[[5, 0]] = files.read("chunk", there)
    store.pool.rows.fill_(torch.nan)
    loaded = torch.empty(2, SHAPE.layers, 2, WIDTH)
    pool.load([5, 0], loaded)
    store.scatter_blocks([9, 4], loaded)
    again = runner.step([TokenSpan("b", rest, 8, [9, 4, 1])])
    assert torch.equal(again, expected)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=10, unique=True), st.integers(0, 99))
def test_host_slots_return_the_kv_of_any_blocks(slots: list[int], seed: int) -> None:
    store = PagedStore(SHAPE, 12, BLOCK_SIZE)
    store.pool.fill(seed)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed)).tolist()
    blocks, others = order[: len(slots)], order[::-1][: len(slots)]
    kept = store.gather_blocks(blocks)
    pool = host_pool(10)
    pool.store(slots, kept)
    loaded = torch.empty_like(kept)
    pool.load(slots, loaded)
    store.scatter_blocks(others, loaded)
    assert torch.equal(store.gather_blocks(others), kept)


def test_slots_outside_the_pool_are_an_error() -> None:
    pool = host_pool(2)
    blocks = torch.zeros(1, SHAPE.layers, 2, WIDTH)
    for slots in ([2], [-1], [0, 1]):
        with pytest.raises(InvariantError, match="of 2 for 1 blocks"):
            pool.store(slots, blocks)


def test_truncated_file_and_missing_folder_are_named(tmp_path: Path) -> None:
    files = BlockFiles(tmp_path, 100)
    blocks = torch.arange(25, dtype=torch.float32)
    files.write("a", blocks)
    assert torch.equal(files.read("a", blocks), blocks)
    (tmp_path / "a").write_bytes(b"x" * 10)
    with pytest.raises(InputError, match="the file is short"):
        files.read("a", blocks)
    files.remove_all(["a", "b"])
    assert not list(tmp_path.iterdir())
    tmp_path.rmdir()
    with pytest.raises(InputError, match="cannot write a file"):
        files.write("b", blocks)
