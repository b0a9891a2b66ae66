"""The cached set, rebuilt at every event that vLLM's publisher writes."""

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.import_samples import lines
from support.kv_publisher import frame, structs

from kvsim.plumbing.errors import InputError
from kvsim.readers.detect import read_sources
from kvsim.readers.reader import look
from kvsim.readers.vllm.cached_blocks import CachedBlocks, batch
from kvsim.readers.vllm.kv_events import batches


class Pool:
    """Blocks by number, as an engine holds them, which publishes what it caches and evicts."""

    def __init__(self, size: int, *, maps: bool, as_bytes: bool) -> None:
        self.blocks: list[Any] = [None] * size
        self.batch, self.stored, self.removed, self.cleared = structs(maps=maps)
        self.as_bytes = as_bytes

    def hash(self, content: int) -> int | bytes:
        return content.to_bytes(32, "big") if self.as_bytes else 2**64 - 1 - content

    def store(self, block: int, content: int) -> list[Any]:
        """A full block is cached, over what it held before."""
        events = self.evict(block)
        self.blocks[block] = self.hash(content)
        stored = self.stored([self.blocks[block]], None, [7] * 16, 16, None, "GPU", None)
        return [*events, stored]

    def evict(self, block: int) -> list[Any]:
        held, self.blocks[block] = self.blocks[block], None
        return [] if held is None else [self.removed([held], "GPU")]

    def clear(self) -> list[Any]:
        self.blocks = [None] * len(self.blocks)
        return [self.cleared()]

    def cached(self) -> set[Any]:
        return {held for held in self.blocks if held is not None}


def acts(size: int) -> st.SearchStrategy[list[tuple[str, int, int]]]:
    kinds = st.sampled_from(["store", "store", "store", "evict", "clear"])
    return st.lists(st.tuples(kinds, st.integers(0, size - 1), st.integers(0, 5)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(acts=acts(8), maps=st.booleans(), as_bytes=st.booleans(), as_frames=st.booleans())
def test_cached_blocks_after_each_kv_event_equal_the_simulated_pools(
    tmp_path_factory: pytest.TempPathFactory,
    acts: list[tuple[str, int, int]],
    maps: bool,
    as_bytes: bool,
    as_frames: bool,
) -> None:
    pool = Pool(8, maps=maps, as_bytes=as_bytes)
    values, expected = [], []
    for number, (kind, block, content) in enumerate(acts):
        arguments = {"store": (block, content), "evict": (block,), "clear": ()}[kind]
        events = getattr(pool, kind)(*arguments)
        payload = msgspec.msgpack.encode(pool.batch(float(number), events))
        values.append(frame(number, payload) if as_frames else payload)
        expected.append(pool.cached())
    path = tmp_path_factory.mktemp("kv") / "events.bin"
    path.write_bytes(b"".join(values))
    cached = CachedBlocks()
    found = []
    for each in batches(look(path)):
        for event in each.events:
            cached.apply(event)
        found.append(cached.hashes())
    assert found == expected
    assert cached.unknown_removals == 0
    assert len(cached) == sum(held is not None for held in pool.blocks)


def test_cached_blocks_are_separate_by_layer_group_and_medium() -> None:
    _, stored, removed, _ = structs(maps=True)
    cached = CachedBlocks()
    for event in (
        stored([1], None, [], 16, None, "GPU", None, group_idx=0),
        stored([1], None, [], 16, None, "GPU", None, group_idx=1),
        stored([1], None, [], 16, None, "CPU", None),
        removed([1], "GPU", group_idx=1),
    ):
        for each in batch(msgspec.to_builtins(event), "test").events:
            cached.apply(each)
    assert cached.hashes() == {1}
    assert cached.hashes(group=1) == set()
    assert cached.hashes("CPU") == {1}


@pytest.mark.parametrize(
    ("maps", "size", "digest"),
    [
        (False, 213, "6e8207b24e81273b050061caf37046e7d9db7f8474448ed1dc0e6dfd7beff4cf"),
        (True, 344, "3aea6b429ed96b342ec7ebaabd71c2a7f382a66cbbb7d308056c98c5fa764693"),
    ],
)
def test_encoded_kv_events_are_byte_for_byte_vllms(maps: bool, size: int, digest: str) -> None:
    """One batch as the structs of the wheels encode it: arrays of 0.22.0, maps of 0.33.0."""
    make, stored, removed, cleared = structs(maps=maps)
    hashes = [b"h" * 32, b"i" * 32]
    events = [
        stored(hashes, None, [1] * 32, 16, None, "GPU", None, group_idx=1),
        removed(hashes[:1], "GPU", 1),
        cleared(),
    ]
    payload = msgspec.msgpack.encode(make(1.0, events, 0))
    assert (len(payload), hashlib.sha256(payload).hexdigest()) == (size, digest)


def test_cleared_event_of_a_rank_leaves_other_ranks_cached(tmp_path: Path) -> None:
    make, stored, _, cleared = structs(maps=True)
    store = stored([1], None, [], 16, None, "GPU", None)
    batches_of = [make(1.0, [store], 0), make(1.0, [store], 1), make(2.0, [cleared()], 0)]
    path = tmp_path / "events.bin"
    path.write_bytes(
        b"".join(
            frame(number, msgspec.msgpack.encode(each))
            for number, each in zip((0, 0, 1), batches_of, strict=True)
        )
    )
    cached = CachedBlocks()
    for each in batches(look(path)):
        for event in each.events:
            cached.apply(event, each.rank)
    assert (cached.hashes(rank=0), cached.hashes(rank=1)) == (set(), {1})
    (read,) = read_sources([str(path)], [])
    assert read.description.notes == ()  # each has numbers of its own


def test_kv_events_are_read_from_json_lines_of_batches_or_events(tmp_path: Path) -> None:
    events = [["BlockStored", [1, 2], None, [5] * 32, 16, None, "GPU"],
              {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"}]  # fmt: skip
    path = lines(tmp_path / "events.jsonl", [[1.0, events[:1]], events[1], {"ts": 2, "events": []}])
    (read,) = read_sources([str(path)], [])
    assert read.format == "kv-events"
    assert read.description.settings.block_size == 16
    assert read.description.measured["cached_blocks_most"] == 2
    assert read.description.measured["cached_blocks_at_the_end"] == 1


def test_missing_batches_and_unknown_removals_are_noted(tmp_path: Path) -> None:
    make, _, removed, _ = structs(maps=False)
    payload = msgspec.msgpack.encode(make(1.0, [removed([9], "GPU")]))
    path = tmp_path / "events.bin"
    path.write_bytes(frame(4, payload) + frame(7, payload))
    (read,) = read_sources([str(path)], [])
    notes = " ".join(read.description.notes)
    assert "2 batches are missing" in notes
    assert "2 blocks were removed that were not seen to be stored" in notes


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"\xdd\xff\xff\xff\xffBlockStored", "MessagePack"),  # a list of four thousand millions
        (b"\x91" * 100_000 + b"\xabBlockStored", "MessagePack|KV event"),
        (msgspec.msgpack.encode([1.0, [["BlockStored", 5]]]), "not a list of hashes"),
        (msgspec.msgpack.encode([1.0, [["BlockRemoved", [[]]]]]), "not a list of hashes"),
        (msgspec.msgpack.encode(["x", [["AllBlocksCleared"]]]), "not a time"),
        (json.dumps([1.0, [["BlockStored", [1], None, [], -1]]]).encode(), "not a block size"),
    ],
)
def test_damaged_kv_events_are_a_one_line_error(content: bytes, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "events.bin"
    path.write_bytes(content)
    with pytest.raises(InputError, match=fault):
        read_sources([f"kv-events={path}"], [])
