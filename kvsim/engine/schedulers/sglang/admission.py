"""One pass over the waiting queue: the admitted requests, and why the pass ended.

The first that is refused ends the pass; nothing overtakes. Whoever is weighed is pinned first, so
that what it would hit counts as taken.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kvsim.engine.hicache.part import HicachePart
from kvsim.engine.schedulers.sglang.budget import CLIP_MAX_NEW_TOKENS, Budget, Stop
from kvsim.engine.schedulers.sglang.ignore_eos import Ends, Span, span
from kvsim.memory.prefix_room import PrefixRoom
from kvsim.sequence import Sequence


class Newcomer(NamedTuple):
    """A request that goes in, pinned: its cached tokens, and those it computes now."""

    seq: Sequence
    cached: int
    new_tokens: int


class PrefillAdmission:
    """wishes: what each request may put out. ratio: the share of it that one which may stop before
    is taken to put out. running: the spans of those that run already. hicache: what a request hits
    there is loaded as it goes in. cached: the pool has a prefix cache.

    taken: admitted requests. stop: why a pass ended before the queue did, if memory or tokens were
    why; no_place: or because as many run as may. cut_twice: SGLang would cut a second prompt too.
    skipped: whether a request was skipped.
    """

    def __init__(
        self,
        room: PrefixRoom,
        budget: Budget,
        wishes: Mapping[Sequence, int],
        ratio: float,
        running: Callable[[], Iterable[Span]],
        hicache: HicachePart,
        *,
        cached: bool,
    ) -> None:
        self._room = room
        self._budget = budget
        self._wishes = wishes
        self._ratio = ratio
        self._running = running
        self._hicache = hicache
        self._cached = cached
        self._ends: Ends | None = None
        self._cut = False  # whether a newcomer computes a part of its prompt
        self.taken: list[Newcomer] = []
        self.stop: Stop | None = None
        self.no_place = False
        self.cut_twice = False
        self.skipped = False

    def choose(self, queue: Iterable[Sequence], places: int, most: int, *, alone: bool) -> None:
        """Take from the front of `queue`, `places` at most, and `most` in one pass.

        alone: no chunked prompt is in progress.
        """
        room, budget = self._room, self._budget
        for seq in queue:
            if budget.stop() is Stop.OTHER:
                break
            if len(self.taken) >= places:
                self.no_place = True
                break
            if self._hicache.skips(seq):
                self.skipped = True
                continue
            cached = room.pin(seq)
            if len(self.taken) >= most:
                room.unpin(seq)
                break
            if seq.request.ignore_eos and not self._cached:
                new_tokens, self.stop = self._weigh_ends(seq)
            else:
                new_tokens, self.stop = self._weigh(seq, cached, first=alone and not self.taken)
            if not new_tokens:
                room.unpin(seq)
                break
            self.taken.append(Newcomer(seq, cached, new_tokens))
            if self.stop is not None:
                break

    def weight(self, seq: Sequence) -> int:
        """Tokens counted for a new request in addition to its prompt."""
        return min(self._wishes[seq], CLIP_MAX_NEW_TOKENS)

    def _weigh(self, seq: Sequence, cached: int, *, first: bool) -> tuple[int, Stop | None]:
        """(tokens of `seq` to compute now, 0 if it is refused; why nothing more goes in).

        A prefix in host memory needs room on the device, and no computing. If it is not loaded, the
        request is weighed again without it.
        """
        budget, loads = self._budget, self._hicache.host_hit(seq)
        while True:
            new_tokens = seq.num_tokens - cached
            most = budget.most_of_chunk(new_tokens, self._rest(seq))
            if most is None:
                return 0, Stop.MEMORY
            new_tokens -= loads
            if not budget.chunked and not first and budget.paged(new_tokens) >= budget.input:
                return 0, Stop.OTHER
            now = budget.first_chunk(cached + loads, new_tokens, most)
            if not loads or now <= 0 or self._hicache.load_back(seq):
                return self._charge(seq, now, new_tokens)
            loads = 0

    def _weigh_ends(self, seq: Sequence) -> tuple[int, Stop | None]:
        """The same for a request with a known end, in a pool without a cache."""
        budget = self._budget
        need = budget.paged(seq.num_tokens) + budget.page
        if need > min(budget.left_current, budget.left_total):
            return 0, Stop.MEMORY
        if self._room.windows is not None:  # ends are not walked through there
            if not budget.holds_at_once(seq.num_tokens, self._rest(seq)):
                return 0, Stop.MEMORY
        elif not self._ends_fit(seq, budget.left_current - need):
            return 0, Stop.MEMORY
        cut = budget.chunked and seq.num_tokens > budget.chunk
        return self._charge(seq, budget.chunk if cut else seq.num_tokens, seq.num_tokens)

    def _rest(self, seq: Sequence) -> int:
        """Output tokens the request may still generate, as far as they count."""
        return min(max(self._wishes[seq] - seq.num_outputs, 0), CLIP_MAX_NEW_TOKENS)

    def _ends_fit(self, seq: Sequence, left: int) -> bool:
        """Whether `left` tokens last until all that run, are taken and `seq` have ended."""
        if self._ends is None:
            taken = (self._span(newcomer.seq) for newcomer in self.taken)
            self._ends = Ends(self._span(seq), (*self._running(), *taken))
        else:
            self._ends.add(self._span(seq))
        return self._ends.fit(left)

    def _charge(self, seq: Sequence, now: int, new_tokens: int) -> tuple[int, Stop | None]:
        """`now` of its `new_tokens` are computed in this pass; one prompt at most is cut."""
        cut = now < new_tokens
        if now <= 0:
            return 0, Stop.OTHER
        if cut and self._cut:  # SGLang cuts the second too, takes the first for whole, and goes on
            self.cut_twice = True  # from what of it was computed: nothing to be reproduced
            return 0, Stop.OTHER
        self._cut = cut
        self._budget.charge(now, 0 if cut else self.weight(seq))
        return now, self._budget.stop()

    def _span(self, seq: Sequence) -> Span:
        """How long a waiting `seq` will go on, and what it then gives back."""
        return span(seq, self._wishes[seq], seq.num_outputs, self._ratio)
