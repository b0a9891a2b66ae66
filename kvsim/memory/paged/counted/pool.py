"""The pool of blocks, counted: as many are taken, kept and forgotten as of `BlockPool`, in the same
order, but no block has an id.

What decides is how many free blocks hold nothing, and in which order the others go. So the free
queue is a number of blank blocks in front, and behind it runs of blocks that came back together.
Only a preempted sequence may find its own blocks again; its run knows which of its table they are.
"""

from collections import deque

from kvsim.plumbing.errors import InvariantError


class Run:
    """Blocks that came back together. num: how many of them still wait. blank: they hold nothing.
    places: where their owner, who may come back for them, had them in its table, in order.
    """

    __slots__ = ("blank", "num", "places")

    def __init__(self, num: int, *, blank: bool = False, places: list[int] | None = None) -> None:
        self.num = num
        self.blank = blank
        self.places = places

    def drop(self, count: int) -> None:
        """The next `count` blocks go: ends of tables first."""
        self.num -= count
        if self.places is not None:
            del self.places[self.num :]


class CountedPool:
    """So many blocks that sequences can have. See `BlockPool` for the order of the free queue."""

    def __init__(self, num_blocks: int, *, blank_first: bool) -> None:
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self.num_cached_free = 0
        self._blank_first = blank_first
        self._front = num_blocks  # blank blocks before all others
        self._back: deque[Run] = deque()

    def take(self, count: int) -> int:
        """`count` <= num_free blocks leave the front of the queue, what they held is forgotten.
        Returns how many held something.
        """
        self.num_free -= count
        if count <= self._front:
            self._front -= count
            return 0
        if self.num_free < 0:
            raise InvariantError(f"{count} blocks taken from {self.num_free + count} free ones")
        count -= self._front
        self._front = 0
        back, evicted = self._back, 0
        while count:
            run = back[0]
            gone = min(run.num, count)
            run.drop(gone)
            if not run.num:
                back.popleft()
            if not run.blank:
                evicted += gone
            count -= gone
        self.num_cached_free -= evicted
        return evicted

    def give_back(self, num_cached: int, num_blank: int) -> None:
        """A sequence has gone for good; so many of its blocks hold known content."""
        self._add_blank(num_blank)
        if num_cached:
            self._add(num_cached, blank=False)
            self.num_cached_free += num_cached

    def keep(self, num_cached: int, num_blank: int) -> Run:
        """A sequence that will come back gives up its blocks; the first `num_cached` of its table
        hold known content.
        """
        self._add_blank(num_blank)
        run = Run(num_cached, places=list(range(num_cached)))
        if num_cached:
            self._back.append(run)
            self.num_free += num_cached
            self.num_cached_free += num_cached
        return run

    def _add_blank(self, count: int) -> None:
        if self._blank_first:
            self._front += count
            self.num_free += count
        elif count:
            self._add(count, blank=True)

    def _add(self, count: int, *, blank: bool) -> None:
        """Blocks that nobody comes back for go to the end of the queue."""
        self.num_free += count
        last = self._back[-1] if self._back else None
        if last is not None and last.places is None and last.blank == blank:
            last.num += count
        else:
            self._back.append(Run(count, blank=blank))

    def claim(self, runs: list[Run], count: int) -> None:
        """The owner of `runs`, oldest first, has come back for the first `count` blocks of its
        table: of each place it takes the oldest. All of them wait in the queue.
        """
        wanted = set(range(count))
        for run in runs:
            assert run.places is not None
            taken = wanted.intersection(run.places)
            if taken:
                wanted -= taken
                run.places = [place for place in run.places if place not in taken]
                run.num = len(run.places)
        self.num_free -= count
        self.num_cached_free -= count

    def check(self, held: int) -> None:
        """Raise InvariantError unless `held` blocks and the free ones are all there are."""
        cached = sum(run.num for run in self._back if not run.blank)
        free = self._front + sum(run.num for run in self._back)
        if free != self.num_free or cached != self.num_cached_free:
            raise InvariantError(f"{free} free blocks, {cached} cached, miscounted")
        if held + free != self.num_blocks:
            raise InvariantError(f"{held} held + {free} free of {self.num_blocks} blocks")


def kept_in(runs: list[Run], most: int) -> int:
    """How many leading blocks of a table still wait in `runs`, at most `most`."""
    places: set[int] = set()
    for run in runs:
        places.update(run.places or ())
    return next((place for place in range(most) if place not in places), most)
