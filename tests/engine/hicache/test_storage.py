"""Storage lookups of the hierarchical cache. The expected results come from SGLang 0.5.23's own
functions, called by hand with a store that counts its queries.
"""

from typing import Any

import pytest

from kvsim.engine.connectors.lane import Lane
from kvsim.engine.hicache import lookups
from kvsim.engine.hicache.contents import StorageContents
from kvsim.engine.hicache.copies import HostLink, TierCopies
from kvsim.engine.hicache.settings import StorageSettings
from kvsim.engine.hicache.storage import Storage
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.hicache.options import PrefetchPolicy
from kvsim.request import Request
from kvsim.sequence import Sequence

PAGE = 4
QUERY_PS, READ_PS = 10, 100


class Times:
    """Each call takes the same time; `asked` has the pages of each query."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def query_ps(self, pages: int) -> int:
        self.asked.append(pages)
        return QUERY_PS

    def read_ps(self, pages: int) -> int:
        return READ_PS

    def store_ps(self, pages: int) -> int:
        return READ_PS


class Bench:
    """A storage under a scheduler that does nothing but its passes. seqs: two that wait, of 30
    tokens each; the storage has the first three pages of the second.
    """

    def __init__(self, policy: PrefetchPolicy, passes: int = 8) -> None:
        link = HostLink(Lane(0, 10**12), Lane(0, 10**12), 1, 1, 1)
        self.pool = RadixAllocator(400, 1, PAGE, host_tokens=40, write_threshold=1)
        self.copies = TierCopies(self.pool, link)
        self.times, self.contents = Times(), StorageContents(PAGE)
        settings = StorageSettings(policy, PAGE, 10**9, 0, passes, 8)
        self.storage = Storage(self.pool, self.copies, self.times, settings, self.contents)
        requests = [
            Request(str(at), 0, 30, 2, prompt_runs=((at * 1000, 30),), max_tokens=2)
            for at in range(2)
        ]
        self.seqs = [Sequence(request, 0) for request in requests]
        content = self.pool.slots(self.seqs[1]).content
        self.contents.stored.update(self.contents.keys.of(0, content, 0, 12))

    def begin(self, now_ps: int) -> None:
        """Begin a scheduler pass."""
        self.copies.now_ps = now_ps
        self.storage.serve(now_ps)
        self.storage.begin(self.seqs, self.seqs[0])

    def passes(self, number: int, now_ps: int) -> None:
        for _ in range(number):
            self.begin(now_ps)


def test_pages_without_host_room_are_not_queried_again() -> None:
    """Nine passes on, the storage is taken to have what it had; no more than that is read."""
    bench = Bench("wait_complete")
    tree, seq = bench.pool.tree, bench.seqs[1]
    tree.host.free = 0
    bench.storage.look_up(seq)
    bench.begin(QUERY_PS)
    assert (bench.times.asked, bench.storage.lookups) == ([7], {})
    tree.host.free = 40
    bench.passes(7, QUERY_PS)
    assert not bench.storage.lookups
    bench.begin(QUERY_PS)
    lookup = bench.storage.lookups[seq]
    assert (lookup.assumed, len(lookup.keys)) == (True, 3)
    assert bench.storage.counts_passes
    assert bench.storage.next_ps == QUERY_PS
    bench.begin(QUERY_PS)
    assert (lookup.taken, tree.host.free) == (3, 40 - 12)
    bench.begin(QUERY_PS + READ_PS)
    assert bench.times.asked == [7]
    assert (bench.storage.brought[seq], bench.storage.lookups) == (12, {})
    tree.check()


def test_pages_cached_during_a_lookup_are_left_out_of_the_next_query() -> None:
    """The first three pages came into host memory by another way: the rest was never found."""
    bench = Bench("wait_complete")
    tree, seq = bench.pool.tree, bench.seqs[1]
    tree.host.free = 0
    bench.storage.look_up(seq)
    bench.begin(QUERY_PS)
    tree.host.free = 40 - 12
    tree.hang(tree.root, bench.pool.slots(seq).content.pieces(0, 12), 12)  # type: ignore[arg-type]
    bench.passes(8, QUERY_PS)
    assert not bench.storage.lookups[seq].assumed
    bench.begin(2 * QUERY_PS)
    assert bench.times.asked == [7, 4]


@pytest.mark.parametrize(("late", "asked"), [(False, [7]), (True, [7, 7])])
def test_late_answer_of_an_aborted_lookup_ends_the_next_lookup(late: bool, asked: Any) -> None:
    """late: the first query was in flight when it was aborted; else it had not begun."""
    bench = Bench("best_effort")
    seq = bench.seqs[1]
    bench.storage.look_up(seq)
    if late:
        assert bench.storage.next_ps == QUERY_PS
    assert not bench.storage.passes_over(seq)
    bench.storage.look_up(seq)
    assert seq in bench.storage.lookups
    bench.begin(QUERY_PS)
    assert not bench.storage.lookups
    bench.begin(2 * QUERY_PS)
    assert (bench.times.asked, bench.storage.lookups) == (asked, {})
    bench.passes(7, 2 * QUERY_PS)
    assert seq in bench.storage.lookups


def test_host_pages_of_an_aborted_read_are_freed_by_a_later_pass() -> None:
    bench = Bench("best_effort")
    tree, (first, second) = bench.pool.tree, bench.seqs
    content = bench.pool.slots(first).content
    bench.contents.stored.update(bench.contents.keys.of(0, content, 0, 28))
    tree.host.free = 28
    bench.storage.look_up(first)
    bench.begin(QUERY_PS)
    assert (tree.host.free, bench.storage.next_ps) == (0, QUERY_PS + READ_PS)
    assert not bench.storage.passes_over(first)  # cut while it reads
    bench.begin(QUERY_PS + READ_PS)
    bench.storage.look_up(second)
    bench.begin(2 * QUERY_PS + READ_PS)
    assert (bench.storage.lookups, tree.host.free) == ({}, 28)


@pytest.mark.parametrize(("waited_ps", "asked"), [(0, []), (1, [7])])
def test_storage_query_in_progress_survives_a_cut_lookup(waited_ps: int, asked: Any) -> None:
    """waited_ps: for a copy, between the begin of the pass and its admission."""
    bench = Bench("best_effort")
    bench.begin(0)
    bench.storage.look_up(bench.seqs[1])
    bench.copies.now_ps += waited_ps
    assert not bench.storage.passes_over(bench.seqs[1])
    bench.begin(READ_PS)
    assert (bench.times.asked, bench.storage.lookups) == (asked, {})


def test_storage_read_continues_until_a_pass_aborts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three batches of one page. The pass takes note of ends when it begins, in the first, and
    waits for a copy until the third would begin.
    """
    monkeypatch.setattr(lookups, "BATCH_PAGES", 1)
    bench = Bench("best_effort")
    seq, tree = bench.seqs[1], bench.pool.tree
    bench.storage.look_up(seq)
    bench.begin(QUERY_PS)
    bench.begin(QUERY_PS + READ_PS // 2)
    bench.copies.now_ps = QUERY_PS + 2 * READ_PS
    assert not bench.storage.passes_over(seq)
    bench.passes(2, QUERY_PS + 9 * READ_PS)
    assert bench.storage.servers[1].pages == 2
    assert (bench.storage.brought, tree.host.free) == ({}, 40)
