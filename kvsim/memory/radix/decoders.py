"""The decoding sequences over a radix tree, and the number of pages that they start.

Pages have no numbers, so the pages of a run of steps are counted by a formula, at a cost
independent of its length.
"""

from heapq import heappop, heappush

from kvsim.memory.cohorts import Cohorts
from kvsim.memory.ledger import (
    CACHED,
    IDLE,
    OVERPROVISIONED,
    RESERVED,
    Course,
    Jumps,
    course_of,
    filling,
    steady,
)
from kvsim.memory.radix.holds import Slots
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import DecodeClock, Sequence, by_order


class PageMoves:
    """Changes of the ledger in one `advance`, step by step: pages taken, tokens evicted, and slots
    of last pages that stay empty. Filled slots are not included.
    """

    def __init__(self) -> None:
        self.pages = Jumps()
        self.evicted = Jumps()
        self.over = Jumps()

    def course(self, decoders: int, page_tokens: int, token_bytes: int) -> Course:
        """The change of the ledger if `decoders` decoders each fill a slot a step. With pages of
        one token every decoder takes a page in every step, and `pages` has only the exceptions.
        """
        moves = filling(token_bytes, decoders)
        if page_tokens == 1:
            moves += steady(IDLE, RESERVED, token_bytes, decoders)
        moves += self.pages.move(IDLE, RESERVED, page_tokens * token_bytes)
        moves += self.evicted.move(CACHED, IDLE, token_bytes)
        moves += self.over.move(RESERVED, OVERPROVISIONED, token_bytes)
        return course_of(moves)


class RadixDecoders:
    """The decoding sequences. num: number of them. extended: sequences with memory already
    allocated for their next token.
    """

    def __init__(self, page_size: int) -> None:
        self._clock = DecodeClock()
        self.extended: dict[Sequence, None] = {}
        self._page = page_size
        self._cohorts = Cohorts(page_size)
        self._last_pages: list[tuple[int, int, Sequence]] = []  # a heap by clock

    @property
    def num(self) -> int:
        """Number of decoding sequences."""
        return self._cohorts.num

    @property
    def clock(self) -> int:
        """Decode steps so far."""
        return self._clock.steps

    def join(self, seq: Sequence, slots: Slots) -> None:
        """`seq` decodes from the next step on."""
        self._cohorts.join(seq, self._clock.join(seq, slots.tokens))
        if not slots.over and seq.final_tokens % self._page:
            heappush(self._last_pages, (self._last_page(seq), seq.order, seq))

    def leave(self, seq: Sequence, slots: Slots) -> None:
        """Remove `seq` from the decoders; its number of slots is stored in `slots` again."""
        slots.granted = self._granted(seq)
        slots.tokens = self._clock.slots(seq)
        self._cohorts.leave(seq, seq.base)
        self.extended.pop(seq, None)

    def _last_page(self, seq: Sequence) -> int:
        """Clock of the step that starts the last page of `seq`."""
        return (seq.final_tokens - 1) // self._page * self._page - seq.base

    def tokens(self, seq: Sequence, slots: Slots) -> int:
        """Valid slots of a live sequence, decoding or not."""
        return self._clock.slots(seq) if seq.decoding else slots.tokens

    def granted(self, seq: Sequence, slots: Slots) -> int:
        """Slots that `seq` holds, in whole pages, including those in the tree."""
        return self._granted(seq) if seq.decoding else slots.granted

    def _granted(self, seq: Sequence) -> int:
        size = self._page
        return (ceil_div(self._clock.slots(seq), size) + (seq in self.extended)) * size

    def without_room(self) -> list[Sequence]:
        """Sequences that need a new page for the next step and lack it, in `order`."""
        cohort = self._cohorts.at(self._clock.steps)
        waiting = cohort.keys() - self.extended.keys() if self.extended else cohort
        return sorted(waiting, key=by_order)

    @property
    def num_without_room(self) -> int:
        """Number of sequences in `without_room`."""
        cohort = self._cohorts.at(self._clock.steps)
        return len(cohort.keys() - self.extended.keys()) if self.extended else len(cohort)

    def steps_within(self, pages: int, limit: int, after: int = 0) -> int:
        """Number of steps, at most `limit`, for which `pages` new pages suffice, starting `after`
        steps from now.
        """
        pages += len(self.extended) if not after else 0
        return self._cohorts.steps_within(pages, self._clock.steps + after, limit)

    def pages(self, after: int, steps: int, moves: PageMoves) -> int:
        """Number of new pages in the `steps` steps that follow the next `after` ones. Each is added
        to `moves` at its step from now on, unless pages hold one token, of which every decoder
        takes one in every step.
        """
        size, taken = self._page, 0
        if size == 1:
            taken = self._cohorts.num * steps
        else:
            for offset in range(min(steps, size)):
                t = after + offset + 1
                count = len(self._cohorts.at(self._clock.steps + t - 1))
                if not count:
                    continue
                times = (steps - offset - 1) // size + 1
                taken += count * times
                moves.pages.repeat(count, t, size, times)
        if not after and self.extended:
            taken -= len(self.extended)
            moves.pages.add(-len(self.extended), 1)
        return taken

    def last_pages(self, steps: int, moves: PageMoves) -> None:
        """Add to `moves` the slots that will stay empty in the last pages begun within the next
        `steps` steps, and note them in their sequences.
        """
        heap = self._last_pages
        while heap and heap[0][0] < self._clock.steps + steps:
            clock, order, seq = heappop(heap)
            if not seq.decoding or seq.order != order:
                continue
            slots: Slots = seq.memory
            if not slots.over and clock == self._last_page(seq) >= self._clock.steps:
                slots.over = -seq.final_tokens % self._page
                moves.over.add(slots.over, clock - self._clock.steps + 1)

    def advance(self, steps: int) -> None:
        """Count `steps` steps, in each of which every sequence took one slot."""
        self._clock.steps += steps
        self.extended.clear()
