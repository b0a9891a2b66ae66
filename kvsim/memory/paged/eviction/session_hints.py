"""Agents send hints about their sessions (vLLM's issues 40270, 52113 and 57103).

Content of a session that pauses for a tool is pinned for a time to live, and content of an ended
session is evicted first.

Hints are best effort, as proposed: if pins exceed their share of the pool, the session that paused
longest ago loses its pin. If all content is pinned, pinned content is evicted too.
"""

from collections import OrderedDict
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import ClassVar

from pydantic import Field

from kvsim.memory.paged.eviction.policy import EvictionPolicy
from kvsim.memory.paged.eviction.ranked import Ranked
from kvsim.memory.paged.session_hint import SessionHint
from kvsim.plumbing.units import PS_PER_S

ENDED, PLAIN, PINNED = range(3)


class SessionHints(EvictionPolicy):
    """ttl_s: how long content stays pinned after each request of a session that goes on.

    pinned: largest share of the pool's blocks for pins. releases: content that only ended sessions
    used goes first. knows_pause: clients say how long a pause will be, and content is pinned only
    where that is within ttl_s.
    """

    hinted: ClassVar[bool] = True
    ttl_s: float = Field(300.0, gt=0, le=1e6)
    pinned: float = Field(0.5, gt=0, le=1)
    releases: bool = True
    knows_pause: bool = False

    def build(self, num_blocks: int, block_tokens: int) -> "Hinted":
        ttl_ps = round(self.ttl_s * PS_PER_S)
        most_pinned = int(self.pinned * num_blocks)
        return Hinted(ttl_ps, most_pinned, releases=self.releases, knows_pause=self.knows_pause)


class Hinted(Ranked):
    """Free blocks ranked by session state: content of ended sessions is evicted first, then plain
    content, then pinned.
    """

    lapses: ClassVar[bool] = True

    def __init__(self, ttl_ps: int, most_pinned: int, *, releases: bool, knows_pause: bool) -> None:
        super().__init__()
        self._knows_pause = knows_pause
        self._ttl_ps, self._most_pinned, self._releases = ttl_ps, most_pinned, releases
        self._now_ps = 0
        self._until_ps: dict[int, int] = {}  # end of the pin, by pinned block
        self._user: dict[int, str | None] = {}  # the only session that used a block; None: several
        self._ended: set[int] = set()
        self._pins: OrderedDict[int, None] = OrderedDict()  # free ones, oldest first
        self._lapses: list[tuple[int, int]] = []

    @property
    def next_lapse_ps(self) -> int | None:  # type: ignore[override]  # the others never have one
        lapses = self._lapses
        while lapses and not self._stands(*lapses[0]):
            heappop(lapses)
        return lapses[0][0] if lapses else None

    def _stands(self, until_ps: int, block: int) -> bool:
        return block in self._pins and self._until_ps[block] == until_ps

    def pass_time(self, now_ps: int) -> None:
        self._now_ps = now_ps
        lapses = self._lapses
        while lapses and lapses[0][0] <= now_ps:
            until_ps, block = heappop(lapses)
            if self._stands(until_ps, block):
                self._unpin(block)

    def returning(self, blocks: Sequence[int], places: Sequence[int], *, hint: SessionHint) -> None:
        goes_on = hint.session is not None and not hint.ends
        if self._knows_pause and (hint.pause_ps is None or hint.pause_ps > self._ttl_ps):
            goes_on = False
        until_ps = self._now_ps + self._ttl_ps
        for block in blocks:
            alone = self._user.setdefault(block, hint.session) == hint.session
            if not alone:
                self._user[block] = None
            if goes_on:
                self._until_ps[block] = until_ps
            elif alone and hint.session is not None:
                self._until_ps.pop(block, None)
            if alone and hint.ends and self._releases:
                self._ended.add(block)
            else:
                self._ended.discard(block)

    def _rank(self, block: int) -> int:
        if block in self._ended:
            return ENDED
        until_ps = self._until_ps.get(block, 0)
        if until_ps <= self._now_ps:
            return PLAIN
        self._pins[block] = None
        heappush(self._lapses, (until_ps, block))
        return PINNED

    def __setitem__(self, block: int, nothing: None) -> None:
        super().__setitem__(block, nothing)
        while len(self._pins) > self._most_pinned:
            self._unpin(next(iter(self._pins)))

    def _unpin(self, block: int) -> None:
        """A block loses its pin, to other pins or by expiry, and is ranked by the time it was
        freed.
        """
        del self._pins[block]
        entry = self._entry[block] = PLAIN, self._entry[block][1]
        heappush(self._heap, (*entry, block))

    def __delitem__(self, block: int) -> None:
        super().__delitem__(block)
        self._pins.pop(block, None)

    def forgotten(self, block: int, key: int | None) -> None:
        self._until_ps.pop(block, None)
        self._user.pop(block, None)
        self._ended.discard(block)
