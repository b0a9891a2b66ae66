"""The free pages of a pool as runs of consecutive numbers. It numbers pages that an allocator only
counts.
"""

from bisect import bisect_left
from heapq import heapify, heappop, heappush

from kvsim.plumbing.errors import InvariantError


class FreePages:
    """Free page numbers of a pool of `num` pages at the start."""

    def __init__(self, num: int) -> None:
        self._runs: list[tuple[int, int]] = []  # (first, end), in order, none adjacent
        self._widest: list[tuple[int, int, int]] = []  # a heap by width, entries out of date in it
        self.num = num
        if num:
            self._put(0, 0, num)

    def take(self, num: int, after: int) -> list[tuple[int, int]]:
        """Take `num` pages as runs (first page, number of pages).

        Takes pages from number `after` on while these are free. Then it takes from the middle of
        the widest gap, so that both neighbours can grow.
        """
        taken = []
        self.num -= num
        while num:
            at = bisect_left(self._runs, (after, after))
            if at == len(self._runs) or self._runs[at][0] != after:
                at, after = self._gap(num)
            first, end = self._runs.pop(at)
            some = min(num, end - after)
            for low, high in ((after + some, end), (first, after)):
                if low < high:
                    self._put(at, low, high)
            taken.append((after, some))
            num, after = num - some, after + some
        return taken

    def _put(self, at: int, first: int, end: int) -> None:
        """Insert a run of free pages at index `at` of the sorted runs."""
        self._runs.insert(at, (first, end))
        heappush(self._widest, (first - end, first, end))
        if len(self._widest) > 4 * len(self._runs) + 64:
            self._widest = [(low - high, low, high) for low, high in self._runs]
            heapify(self._widest)

    def _gap(self, num: int) -> tuple[int, int]:
        """Return the index of the widest free run, and the page of it at which `num` pages should
        begin.
        """
        if not self._runs:
            raise InvariantError(f"{num} pages are taken beyond the pool")
        while True:
            _, first, end = self._widest[0]
            at = bisect_left(self._runs, (first, end))
            if at < len(self._runs) and self._runs[at] == (first, end):
                break
            heappop(self._widest)
        middle = (first + end) // 2
        return at, middle if first and end - middle >= num else first

    def give(self, first: int, num: int) -> None:
        """Free a run of pages."""
        self.num += num
        runs, end = self._runs, first + num
        at = bisect_left(runs, (first, end))
        if at < len(runs) and runs[at][0] == end:
            end = runs.pop(at)[1]
        if at and runs[at - 1][1] == first:
            at -= 1
            first = runs.pop(at)[0]
        self._put(at, first, end)
