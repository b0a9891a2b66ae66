"""Every placement against its promise, and the searching ones against a map of single bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.arena import PLACEMENTS
from kvsim.memory.arena.best_fit import BestFitArena
from kvsim.memory.arena.buddy import BuddyArena
from kvsim.memory.arena.compacting import Compacting
from kvsim.memory.arena.first_fit import FirstFit, FirstFitArena
from kvsim.memory.arena.next_fit import NextFitArena
from kvsim.memory.options import MemorySpec
from kvsim.plumbing.errors import InputError, InvariantError

TOKEN_BYTES = 96 * 1024
VARIANTS = [
    *((kind, {}) for kind in PLACEMENTS),
    ("first-fit", {"unit_tokens": 8}),
    ("buddy", {"unit_tokens": 1, "largest_tokens": 100}),
    ("fixed-slots", {"slot_tokens": 33}),
    ("torch-caching", {"expandable_segments": True}),
]
OPS = st.lists(
    st.tuples(st.sampled_from(["allocate", "allocate", "free", "extend"]), st.integers(1, 300)),
    max_size=60,
)


def spec(tokens=1000, odd_bytes=12_345, max_model_len=256):
    layout = KVLayout((KVGroup("full", 4, TOKEN_BYTES),))
    return MemorySpec(tokens * TOKEN_BYTES + odd_bytes, layout, max_model_len, 10**12)


def play(arena, ops, size_of):
    """Run ops (what, number); yields after each of them (what, size, answer)."""
    live = []
    for what, number in ops:
        size = size_of(number)
        if what == "allocate":
            before = arena.version
            placed = arena.allocate(size)
            assert (arena.version > before) == bool(placed)
            if placed:
                assert placed.granted >= size
                live.append(placed.address)
            yield what, size, placed
        elif live:
            address = live[number % len(live)]
            if what == "free":
                live.remove(address)
                arena.free(address)
                yield what, size, address
            else:
                grown = arena.granted(address) + size
                yield what, grown, arena.extend_in_place(address, grown)
                assert arena.granted(address) > 0


@pytest.mark.parametrize(("kind", "options"), VARIANTS)
@given(ops=OPS)
@settings(max_examples=40, deadline=None)
def test_placements_obey_their_interface(kind, options, ops):
    build = PLACEMENTS.get(kind).parse(options, "placement").build
    arena, again = build(spec()), build(spec())
    empty = (arena.free_bytes, arena.largest_hole, arena.metadata_bytes)
    answers = []
    for answer in play(arena, ops, lambda number: number * 40_000):
        answers.append(answer)
        arena.check()
        hole = arena.largest_hole
        assert (hole == 0) or arena.fits(hole)
        assert not arena.fits(hole + 1)
        for size in (hole, 3_000_000, 700_000, 25_000_000):
            if size:
                twin = arena.clone()
                assert arena.fits(size) == (twin.allocate(size) is not None)
                assert arena.can_ever_fit(size) or not arena.fits(size)
                twin.check()
                assert_places(arena, size, 12)
        arena.check()  # what a twin did stays with it
    assert answers == list(play(again, ops, lambda number: number * 40_000))
    for address, _ in list(arena.live()):
        arena.free(address)
    arena.check()
    assert (arena.free_bytes, arena.largest_hole, arena.metadata_bytes) == empty
    with pytest.raises(InvariantError):
        arena.free(0)


def assert_places(arena, size, most):
    """So many regions find places, whether or not others are freed in between."""
    places = arena.places_for(size, most)
    trial, freeing = arena.clone(), arena.clone()
    found = 0
    while found < most and trial.allocate(size):
        found += 1
    assert arena.fits_all([size] * most) == (found == most)
    if places is not None:
        assert min(places, most) == found
        old = [address for address, _ in freeing.live()]
        for _ in range(found):
            assert freeing.allocate(size)
            if old:
                freeing.free(old.pop())


class ByteMap:
    """A pool as one owner a byte, searched byte by byte: slow, and plainly right."""

    def __init__(self, capacity, policy):
        self.cells = [None] * capacity
        self.policy, self.rover, self.sizes = policy, 0, {}

    def holes(self):
        found, start = [], None
        for index, owner in enumerate([*self.cells, "end"]):
            if owner is None and start is None:
                start = index
            elif owner is not None and start is not None:
                found.append((start, index - start))
                start = None
        return found

    def allocate(self, size):
        fitting = [hole for hole in self.holes() if hole[1] >= size]
        if not fitting:
            return None
        if self.policy == "best":
            start = min(fitting, key=lambda hole: (hole[1], hole[0]))[0]
        elif self.policy == "next":
            ahead = [hole for hole in fitting if sum(hole) > self.rover]
            start = (ahead or fitting)[0][0]
        else:
            start = fitting[0][0]
        self.fill(start, size)
        self.rover = start + size
        return start

    def fill(self, start, size):
        self.cells[start : start + size] = [start] * size
        self.sizes[start] = size

    def free(self, start):
        size = self.sizes.pop(start)
        self.cells[start : start + size] = [None] * size

    def extend(self, start, size):
        end = start + self.sizes[start]
        stop = start + size
        if stop > len(self.cells) or any(c is not None for c in self.cells[end:stop]):
            return False
        self.fill(start, size)
        return True


@pytest.mark.parametrize(
    ("arena_class", "policy"),
    [(FirstFitArena, "first"), (BestFitArena, "best"), (NextFitArena, "next")],
)
@given(
    ops=st.lists(
        st.tuples(st.sampled_from(["allocate", "allocate", "free", "extend"]), st.integers(1, 24)),
        max_size=80,
    )
)
@settings(max_examples=150, deadline=None)
def test_searching_placements_equal_a_byte_map(arena_class, policy, ops):
    arena, model = arena_class(100), ByteMap(100, policy)
    live = []
    for what, number in ops:
        if what == "allocate":
            placed = arena.allocate(number)
            assert (placed.address if placed else None) == model.allocate(number)
            live += [placed.address] if placed else []
        elif live:
            address = live[number % len(live)]
            if what == "free":
                live.remove(address)
                arena.free(address)
                model.free(address)
            else:
                size = model.sizes[address] + number
                assert arena.extend_in_place(address, size) == model.extend(address, size)
        assert list(arena.holes()) == model.holes()
        assert dict(arena.live()) == model.sizes


def test_next_fit_searches_a_hole_that_ends_at_the_rover_last():
    arena = NextFitArena(400)
    first, second, third = (arena.allocate(100).address for _ in range(3))
    arena.free(second)
    last = arena.allocate(100).address
    again = arena.allocate(100).address
    assert (first, third, last, again) == (0, 200, 300, second)  # round the end of the space
    arena.free(again)
    arena.free(last)
    assert list(arena.holes()) == [(100, 100), (300, 100)]
    assert arena.allocate(100).address == 300


@pytest.mark.parametrize("arena_class", [FirstFitArena, BestFitArena, NextFitArena])
def test_full_arena_refuses_allocation_and_extension(arena_class):
    arena = arena_class(100)
    first, second = (arena.allocate(50).address for _ in range(2))
    assert not arena.extend_in_place(first, 51)
    assert not arena.extend_in_place(second, 51)  # nor out of the space
    assert (arena.largest_hole, arena.fits(1), arena.allocate(1)) == (0, False, None)
    arena.check()


def test_each_policy_finds_its_hole_among_hundreds():
    """Enough holes that both ways of searching are taken."""
    for arena_class, wanted in ((FirstFitArena, 600), (BestFitArena, 900), (NextFitArena, 600)):
        arena = arena_class(2000)
        regions = [arena.allocate(size).address for size in ([5] * 400)]
        for index in range(0, 400, 2):
            arena.free(regions[index])
        for index in (121, 123, 181):  # holes of 25 at 600 and of 15 at 900, all others of 5
            arena.free(regions[index])
        assert arena.largest_hole == 25
        assert arena.allocate(15).address == wanted
        arena.check()


def test_buddy_arena_of_983_slots_starts_as_decreasing_powers_of_two():
    """983 = 7 * 128 + 64 + 16 + 4 + 2 + 1, and Orca (Max) keeps 7 sequences in it."""
    arena = BuddyArena(983, 1, 128)
    assert [size for _, size in arena.holes()] == [128] * 7 + [64, 16, 4, 2, 1]
    placed = [arena.allocate(128) for _ in range(8)]
    assert [p.address for p in placed[:7]] == [128 * i for i in range(7)]
    assert placed[7] is None
    assert arena.free_bytes == 87
    assert arena.largest_hole == 64


def test_largest_buddy_may_be_the_whole_pool():
    memory = spec(16, odd_bytes=0)
    arena = PLACEMENTS.get("buddy").parse({"unit_tokens": 16}, "placement").build(memory)
    assert arena.allocate(1).granted == 16 * TOKEN_BYTES
    assert arena.allocate(1) is None
    with pytest.raises(InputError, match="smaller than the smallest buddy"):
        PLACEMENTS.get("buddy").parse({"unit_tokens": 17}, "placement").build(memory)


@given(ops=OPS)
@settings(max_examples=100, deadline=None)
def test_free_buddies_are_always_the_maximal_aligned_regions(ops):
    """The free buddies are always the maximal aligned free stretches, found here by brute force."""
    units, largest = 237, 32
    arena = BuddyArena(units, 1, largest)

    def maximal():
        """Free aligned stretches not inside a larger one, tile by tile of the empty pool."""
        used = set()
        for address, size in arena.live():
            used.update(range(address, address + size))
        start, found = 0, []
        while start < units:
            tile = min(largest, 1 << ((units - start).bit_length() - 1))
            stack = [(start, tile)]
            while stack:
                at, size = stack.pop()
                if used.isdisjoint(range(at, at + size)):
                    found.append((at, size))
                elif size > 1:
                    stack += [(at, size // 2), (at + size // 2, size // 2)]
            start += tile
        return sorted(found)

    before = maximal()
    for what, size, answer in play(arena, ops, lambda number: number % 40 + 1):
        if what == "allocate":
            fitting = [hole for hole in before if hole[1] >= size]
            assert (answer is None) == (not fitting)
            if answer:
                smallest = min(hole_size for _, hole_size in fitting)
                assert any(a == answer.address and s == smallest for a, s in fitting)
                assert answer.granted == 1 << (size - 1).bit_length()
        before = maximal()
        assert list(arena.holes()) == before


def test_free_buddies_are_allocated_last_in_first_out():
    arena = BuddyArena(8, 1, 8)
    a, b, c, d = (arena.allocate(2).address for _ in range(4))
    assert (a, b, c, d) == (0, 2, 4, 6)
    arena.free(a)
    arena.free(c)
    assert arena.allocate(2).address == c
    assert arena.allocate(2).address == a


def test_buddy_extends_in_place_only_into_free_upper_halves():
    arena = BuddyArena(16, 1, 8)
    low = arena.allocate(2).address
    assert arena.extend_in_place(low, 7)
    assert arena.granted(low) == 8
    assert not arena.extend_in_place(low, 9)  # beyond the largest
    arena.free(low)
    first, second = arena.allocate(2).address, arena.allocate(2).address
    assert not arena.extend_in_place(first, 3)  # its half is taken
    assert not arena.extend_in_place(second, 3)  # it is an upper half itself
    arena.check()


@pytest.mark.parametrize(
    ("kind", "options"),
    [("first-fit", {"unit_tokens": 2000}), ("buddy", {"unit_tokens": 2000}), ("fixed-slots", {})],
)
def test_options_that_do_not_fit_the_pool_are_refused(kind, options):
    options = PLACEMENTS.get(kind).parse(options, "placement")
    with pytest.raises(InputError, match="smaller than"):
        options.build(spec(max_model_len=1001))


def test_a_pool_below_one_torch_segment_is_refused():
    with pytest.raises(InputError, match="smaller than one segment"):
        PLACEMENTS.get("torch-caching")().build(spec(tokens=1))


@pytest.mark.parametrize("rounded_as", [None, FirstFit()])
def test_compacting_placement_fills_the_pool_to_the_last_byte(rounded_as):
    arena = Compacting(rounded_as=rounded_as).build(spec())
    half = spec().capacity_bytes // 2
    first, second = arena.allocate(half), arena.allocate(arena.free_bytes)
    assert second is not None
    assert arena.free_bytes == 0
    assert arena.allocate(1) is None
    arena.free(first.address)
    assert arena.extend_in_place(second.address, second.granted + arena.free_bytes)
    assert arena.free_bytes == 0
