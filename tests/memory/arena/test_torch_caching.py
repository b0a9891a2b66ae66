"""torch's caching allocator: cases worked by hand from its rules, and random runs of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.memory.arena.torch_blocks import State
from kvsim.memory.arena.torch_caching import TorchCachingArena
from kvsim.memory.arena.torch_expandable import ExpandableArena
from kvsim.plumbing.units import MIB


def arena_of(mib, arena_class=TorchCachingArena):
    return arena_class(mib * MIB)


@pytest.mark.parametrize(
    ("size", "granted", "reserved"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),  # large pool, the rest split off
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),  # a rest of 1 MiB + 512 is split off
        (11 * MIB, 12 * MIB, 12 * MIB),  # a rest of 1 MiB is given along
    ],
)
def test_single_torch_request_reserves_one_segment(size, granted, reserved):
    arena = arena_of(100)
    assert arena.allocate(size).granted == granted
    assert arena.reserved_bytes == reserved
    arena.check()


def test_requests_share_segments_and_the_best_fit_is_taken():
    arena = arena_of(100)
    a, b, c = (arena.allocate(6 * MIB).address for _ in range(3))
    assert (a, b, c) == (0, 6 * MIB, 12 * MIB)
    d = arena.allocate(4 * MIB).address  # the 2 MiB left are too few: a second segment
    assert (d, arena.reserved_bytes) == (20 * MIB, 40 * MIB)
    arena.free(b)
    assert arena.allocate(5 * MIB - 512).address == b  # 6 MiB fit better than 16
    assert arena.allocate(7 * MIB).address == 24 * MIB


def test_unsplit_torch_segment_is_one_block():
    arena = arena_of(100)
    first = arena.allocate(19 * MIB)  # a segment of 20 MiB, rest 1 MiB: not split
    assert first.granted == 20 * MIB
    arena.free(first.address)
    assert arena.allocate(18 * MIB).granted == 18 * MIB  # rest 2 MiB: split
    assert arena.reserved_bytes == 20 * MIB


def test_idle_torch_segments_are_freed_when_the_device_is_full():
    arena = arena_of(40)
    a, b = arena.allocate(20 * MIB).address, arena.allocate(20 * MIB).address
    assert not arena.fits(512)
    arena.free(a)
    arena.free(b)
    assert arena.reserved_bytes == 40 * MIB  # cached
    assert arena.allocate(30 * MIB).granted == 30 * MIB
    assert arena.reserved_bytes == 30 * MIB


def test_torch_segment_with_one_live_block_cannot_be_freed():
    arena = arena_of(40)
    a = arena.allocate(5 * MIB).address
    arena.allocate(5 * MIB)
    arena.allocate(512)
    arena.free(a)
    assert arena.free_bytes == 35 * MIB - 512
    # 20 MiB and 2 MiB are in segments in use: 18 MiB are left, though 35 are free.
    assert arena.largest_hole == 18 * MIB
    assert not arena.fits(18 * MIB + 1)
    assert arena.allocate(30 * MIB) is None
    assert arena.reserved_bytes == 22 * MIB


def test_small_and_large_torch_requests_never_share_a_segment():
    arena = arena_of(23)
    arena.allocate(2 * MIB)
    arena.allocate(MIB)  # 2 MiB segment
    arena.allocate(MIB)
    assert not arena.fits(512)  # 18 MiB are free in the large pool, none of it for this
    assert arena.fits(18 * MIB)
    assert arena.metadata_bytes == MIB


def test_expandable_segments_grow_by_pages_and_leave_no_gaps():
    arena, plain = arena_of(100, ExpandableArena), arena_of(100)
    for each in (arena, plain):
        assert each.allocate(15 * MIB)
        assert each.allocate(15 * MIB)
        assert each.allocate(15 * MIB)
    assert plain.reserved_bytes == 3 * 16 * MIB
    assert arena.reserved_bytes == 60 * MIB
    assert [b.address for b in arena.blocks()][:3] == [0, 15 * MIB, 30 * MIB]
    assert sum(b.size for b in arena.blocks() if b.state is State.FREE) == 15 * MIB
    arena.check()


def test_unmapped_pages_in_mid_segment_are_mapped_again_first():
    arena = arena_of(60, ExpandableArena)
    a, b, c = (arena.allocate(20 * MIB).address for _ in range(3))
    assert (a, b, c) == (0, 20 * MIB, 40 * MIB)
    arena.free(b)
    small = arena.allocate(512)  # no page left for the small pool: the idle one is unmapped
    assert small is not None
    assert arena.reserved_bytes == 42 * MIB
    assert not arena.fits(20 * MIB)
    arena.free(small.address)
    assert arena.allocate(20 * MIB).address == b
    arena.check()


def test_expandable_segment_prefers_free_block_that_cannot_grow():
    """The block that could still grow is the larger one, though it is the smaller now."""
    arena = arena_of(200, ExpandableArena)
    a = arena.allocate(30 * MIB).address
    arena.allocate(27 * MIB)  # 60 MiB mapped, the 3 MiB at the end can grow
    arena.free(a)
    assert arena.allocate(2 * MIB).address == a
    assert arena_of(200).allocate(2 * MIB).address == 0


def test_equal_free_blocks_between_regions_are_used_lowest_address_first():
    """The size of the region after a block does not matter, since the block cannot grow into it."""
    arena = arena_of(200, ExpandableArena)
    small, _, large, _ = (arena.allocate(size * MIB).address for size in (3, 20, 5, 2))
    arena.free(large)
    arena.free(small)
    assert arena.allocate(3 * MIB).address == small
    assert arena.allocate(3 * MIB).address == large


class Ear:
    """A listener that sums device memory and collects live addresses."""

    def __init__(self):
        self.device_bytes, self.live = 0, set()

    def allocated(self, address, size, owner):
        self.live.add(address)

    def freed(self, address):
        self.live.remove(address)

    def device(self, action, address, size):
        self.device_bytes += size if action in ("segment_alloc", "segment_map") else -size


SIZES = st.sampled_from(
    [512, 5000, 400_000, MIB, MIB + 1, 3 * MIB, 7 * MIB, 10 * MIB, 13 * MIB, 21 * MIB, 40 * MIB]
)


@given(ops=st.lists(st.tuples(st.booleans(), SIZES, st.integers(0, 50)), max_size=60))
@settings(max_examples=150, deadline=None)
def test_torch_fits_equals_a_recount_of_segments_and_blocks(ops):
    """`fits` recomputed from the public picture: a cached block of the pool, or room on the device
    once every segment without an allocation has gone back."""
    arena = arena_of(90)
    live = []
    arena.listener = ear = Ear()
    for allocate, size, pick in ops:
        if not allocate and live:
            arena.free(live.pop(pick % len(live)))
            continue
        rounded = -(-size // 512) * 512
        small = rounded <= MIB
        segment = 2 * MIB if small else 20 * MIB
        if rounded >= 10 * MIB:
            segment = -(-rounded // (2 * MIB)) * 2 * MIB
        blocks = arena.blocks()
        pools = {s.address: s.small for s in arena.segments()}
        cached = [
            (b.size, b.address)
            for b in blocks
            if b.state is State.FREE and pools[b.segment] is small and b.size >= rounded
        ]
        busy = {b.segment for b in blocks if b.state is State.ALLOCATED}
        kept = sum(s.size for s in arena.segments() if s.address in busy)
        placed = arena.allocate(size)
        assert (placed is not None) == (bool(cached) or kept + segment <= 90 * MIB)
        if placed:
            live.append(placed.address)
            if cached:
                assert placed.address == min(cached)[1]
            rest_kept = 511 if small else MIB
            assert rounded <= placed.granted <= rounded + rest_kept
    arena.check()
    assert ear.device_bytes == arena.reserved_bytes
    assert ear.live == {address for address, _ in arena.live()}


@given(ops=st.lists(st.tuples(st.booleans(), SIZES, st.integers(0, 50)), max_size=60))
@settings(max_examples=100, deadline=None)
def test_expandable_segments_serve_the_whole_pool_after_all_is_freed(ops):
    arena = arena_of(101, ExpandableArena)
    live = []
    for allocate, size, pick in ops:
        if allocate or not live:
            placed = arena.allocate(size)
            live += [placed.address] if placed else []
        else:
            arena.free(live.pop(pick % len(live)))
        arena.check()
        assert arena.reserved_bytes <= 100 * MIB
    for address in live:
        arena.free(address)
    assert arena.allocate(100 * MIB)
