"""Assigns page numbers for a radix allocator, which only counts pages, and records their owners.

All free pages are equal, so a sequence's next page is the one after its last if that is free.
Content stays on its page while it moves from a sequence to the radix tree, locked or cached.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

from kvsim.engine.addresses.free_pages import FreePages
from kvsim.memory.radix.node import Node
from kvsim.memory.radix.tree import RadixTree
from kvsim.results.addresses import HELD, KEPT, Addresses
from kvsim.sequence import Sequence


@runtime_checkable
class InPages(Protocol):
    """An allocator that counts pages. tree: the radix tree with the pages that sequences share."""

    tree: RadixTree
    page_tokens: int
    pool_tokens: int
    token_bytes: int
    keeper: "PageRecorder | None"

    def own_tokens(self) -> Iterator[tuple[Sequence, int]]: ...


class PageRun(NamedTuple):
    """Consecutive pages of one owner, and the time since when it has them."""

    first: int
    num: int
    since_ps: int


class PageRecorder:
    """Collects events of sequences and tree nodes, and records them at the next sample, which
    supplies the time.

    Pages taken in a run of equal steps are recorded from the middle of the run on.
    """

    def __init__(self, allocator: InPages, addresses: Addresses) -> None:
        self._allocator = allocator
        self._addresses = addresses
        self._page = allocator.page_tokens
        self._free = FreePages(allocator.pool_tokens // self._page)
        self._own: dict[Sequence, Runs] = {}
        self._counts: dict[Sequence, int] = {}  # pages by sequence
        self._nodes: dict[Node, _Drawn] = {}
        self._turned: dict[Node, None] = {}  # held or left since the last sample
        self._events: list[Callable[[], None]] = []
        self._filing: Runs = []
        self._filer = ""
        self._brought = False  # nodes got pages again since the last sample
        self._now_ps = 0
        allocator.keeper = allocator.tree.keeper = self

    # --- events of the allocator ------------------------------------------------------------------

    def filing(self, seq: Sequence, tokens: int) -> None:
        """The tree takes over the first `tokens` of the tokens that only `seq` holds."""
        self._events.append(partial(self._file, seq, tokens // self._page))

    def released(self, seq: Sequence) -> None:
        """`seq` frees all pages that only it holds."""
        self._events.append(partial(self._release, seq))

    # --- events of the tree -----------------------------------------------------------------------

    def filed(self, node: Node) -> None:
        """Note a new leaf of the tree. It holds the end of the content being inserted."""
        self._events.append(partial(self._begin, node, node.tokens // self._page))

    def brought(self, node: Node, owner: str) -> None:
        """A node gets device pages again, as `owner` loads its content from host memory."""
        self._events.append(partial(self._bring, node, owner, node.tokens // self._page))
        self._brought = True

    def split(self, upper: Node, lower: Node) -> None:
        """A node is split: its first tokens become the node `upper`, and `lower` has the rest."""
        self._events.append(partial(self._part, upper, lower, upper.tokens // self._page))

    def turned(self, node: Node) -> None:
        """A node got its first lock, or lost its last one."""
        self._turned[node] = None

    def forgotten(self, node: Node) -> None:
        """A node is evicted."""
        self._events.append(partial(self._forget, node))

    # --- sampling ---------------------------------------------------------------------------------

    def sample(self, running: Iterable[Sequence], now_ps: int) -> None:
        before_ps, self._now_ps = self._now_ps, now_ps
        if not self._brought:  # else nodes may have taken pages that are free now
            self._follow(before_ps + (now_ps - before_ps + 1) // 2, what_is_free=True)
        self._brought = False
        if self._events:
            for apply in self._events:
                apply()
            self._events.clear()
            self._drop()
        for node in self._turned:
            self._turn(node)
        self._turned.clear()
        self._follow(now_ps)

    def close(self, now_ps: int) -> None:
        self._allocator.keeper = self._allocator.tree.keeper = None
        self._now_ps = now_ps
        for seq, runs in self._own.items():
            self._write(runs, HELD, seq.id)
        for drawn in self._nodes.values():
            self._write(drawn.runs(), drawn.kind, drawn.owner)

    def _follow(self, since_ps: int, *, what_is_free: bool = False) -> None:
        """Give each sequence page numbers for its growth since the last sample, owned since
        since_ps.

        what_is_free: take no more pages than are free, and return none.
        """
        own, counts = self._own, self._counts
        for seq, tokens in self._allocator.own_tokens():
            more = tokens // self._page - counts.get(seq, 0)
            if not more:
                continue
            runs = own.setdefault(seq, [])
            if what_is_free:
                more = min(more, self._free.num)
            elif more < 0:
                own[seq], back = _parted(runs, tokens // self._page)
                self._end(back, HELD, seq.id)
            if more > 0:
                runs += self._taken(more, runs, since_ps)
            counts[seq] = counts.get(seq, 0) + (more if more > 0 or not what_is_free else 0)

    def _taken(self, num: int, runs: "Runs", since_ps: int) -> "Runs":
        """Take `num` pages, if possible directly after the last of `runs`."""
        after = runs[-1].first + runs[-1].num if runs else -1
        return [PageRun(first, some, since_ps) for first, some in self._free.take(num, after)]

    # --- events, at the sample --------------------------------------------------------------------

    def _file(self, seq: Sequence, pages: int) -> None:
        self._drop()
        runs, num = self._own.pop(seq, []), self._counts.get(seq, 0)
        if pages > num:
            runs = runs + self._taken(pages - num, runs, self._now_ps)
        self._filing, self._own[seq] = _parted(runs, pages)
        self._counts[seq] = max(num - pages, 0)
        self._filer = seq.id

    def _drop(self) -> None:
        """Free the inserted pages that no new node took: the tree has their content already."""
        self._end(self._filing, HELD, self._filer)
        self._filing = []

    def _release(self, seq: Sequence) -> None:
        self._drop()
        self._counts.pop(seq, None)
        self._end(self._own.pop(seq, []), HELD, seq.id)

    def _begin(self, node: Node, pages: int) -> None:
        self._filing, runs = _parted(self._filing, _count(self._filing) - pages)
        self._nodes[node] = _Drawn(runs, self._filer, HELD)
        self._turned[node] = None

    def _bring(self, node: Node, owner: str, pages: int) -> None:
        self._drop()
        self._nodes[node] = _Drawn(self._taken(pages, [], self._now_ps), owner, HELD)
        self._turned[node] = None

    def _part(self, upper: Node, lower: Node, pages: int) -> None:
        whole = self._nodes[lower]
        head, tail = _parted(whole.runs(), pages)
        self._nodes[upper] = _Drawn(head, whole.owner, whole.kind)
        self._nodes[lower] = _Drawn(tail, whole.owner, whole.kind)
        self._turned[upper] = self._turned[lower] = None

    def _forget(self, node: Node) -> None:
        drawn = self._nodes.pop(node)
        self._turned.pop(node, None)
        self._end(drawn.runs(), drawn.kind, drawn.owner)

    def _turn(self, node: Node) -> None:
        """Record that a node changed between locked (held) and only cached."""
        drawn, kind = self._nodes[node], HELD if node.locks else KEPT
        if kind != drawn.kind:
            if drawn.rows is None:
                self._write(drawn.runs(), drawn.kind, drawn.owner)
                drawn.begin_at_once(self._now_ps)
                size = self._page * self._allocator.token_bytes
                runs = _joined(sorted(drawn.runs()))
                pieces = ((run.first * size, run.num * size) for run in runs)
                drawn.rows = self._addresses.owned(pieces, drawn.owner)
            else:
                self._addresses.lay_again(drawn.rows, drawn.since_ps, self._now_ps, drawn.kind)
                drawn.since_ps = self._now_ps
            drawn.kind = kind

    def _end(self, runs: "Runs", kind: int, owner: str) -> None:
        self._write(runs, kind, owner)
        for run in runs:
            self._free.give(run.first, run.num)

    def _write(self, runs: "Runs", kind: int, owner: str) -> None:
        """Write the intervals of these pages, which end now, with adjacent pages of equal intervals
        merged.
        """
        size, now_ps = self._page * self._allocator.token_bytes, self._now_ps
        for first, num, since_ps in _joined(sorted(runs)):
            self._addresses.lay(first * size, num * size, since_ps, now_ps, owner, kind)


Runs = list[PageRun]


class _Drawn:
    """The recorded state of one tree node: its pages in token order, their owner, and held or
    cached.

    since_ps: start of the interval if it is the same for all pages, else -1. rows: with a common
    start, the log rows to write again at each change.
    """

    def __init__(self, runs: Runs, owner: str, kind: int) -> None:
        self._runs = runs
        self.owner = owner
        self.kind = kind
        self.since_ps = -1
        self.rows: array[int] | None = None

    def runs(self) -> Runs:
        """Runs of the node's pages, each with the start of its interval."""
        if self.since_ps < 0:
            return self._runs
        return [PageRun(first, num, self.since_ps) for first, num, _ in self._runs]

    def begin_at_once(self, now_ps: int) -> None:
        """Start a new interval for all pages of the node at now_ps."""
        self._runs = _joined([PageRun(first, num, now_ps) for first, num, _ in self._runs])
        self.since_ps = now_ps


def _count(runs: Runs) -> int:
    return sum(run.num for run in runs)


def _parted(runs: Runs, pages: int) -> tuple[Runs, Runs]:
    """Split `runs` after the first `pages` pages."""
    head: Runs = []
    for at, run in enumerate(runs):
        if pages < run.num:
            tail = [run._replace(first=run.first + pages, num=run.num - pages), *runs[at + 1 :]]
            return ([*head, run._replace(num=pages)] if pages else head), tail
        head.append(run)
        pages -= run.num
    return head, []


def _joined(runs: Runs) -> Runs:
    """Merge adjacent runs that were taken at the same time. runs: sorted."""
    found: Runs = []
    end = before_ps = -1
    for run in runs:
        first, num, since_ps = run
        if first == end and since_ps == before_ps:
            found[-1] = PageRun(found[-1].first, found[-1].num + num, since_ps)
        else:
            found.append(run)
        end, before_ps = first + num, since_ps
    return found
