"""SGLang's bucket policy: prompts of similar length go to one worker, unless the load is
imbalanced.
"""

from bisect import bisect_left
from collections import deque
from math import inf

from pydantic import Field

from kvsim.fleet.routers.options import FleetView, TyingOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router, Ties
from kvsim.plumbing.units import PS_PER_S

FIRST_CHARACTERS = 4096  # up to which the first boundaries divide lengths evenly


class Bucket(TyingOptions):
    """SGLang's bucket policy for prefill workers (sgl-model-gateway, `policies/bucket.rs`).

    Each worker takes the prompts of a range of lengths, in characters. bucket_adjust_interval_secs:
    how often ranges are checked, and how long a prompt counts. If the characters per worker have
    doubled or halved, ranges are set so that each worker would have got the same number of recent
    characters. balance_abs_threshold, balance_rel_threshold: limits to the difference and the ratio
    of characters between the busiest and the least busy worker. Beyond both, the least busy worker
    is chosen. ties: the lowest number if not given. When a replica starts or ends, lengths are
    divided again as at the start.
    """

    balance_abs_threshold: int = Field(64, ge=0)
    balance_rel_threshold: float = Field(1.5, ge=1)
    bucket_adjust_interval_secs: float = Field(5, gt=0)

    def build(self, view: FleetView) -> "BucketRouter":
        return BucketRouter(self, view, self.ties or "lowest")


class BucketRouter(Router):
    """SGLang's bucket router. ends: the longest prompt in characters for each replica alive, in
    order.
    """

    def __init__(self, options: Bucket, view: FleetView, ties: Ties) -> None:
        super().__init__(view.num_replicas, ties, view.seed)
        self._options, self._characters = options, view.characters
        self._interval_ps = round(options.bucket_adjust_interval_secs * PS_PER_S)
        self._recent: deque[tuple[int, int, int]] = deque()  # when, where, characters
        self._held = [0] * view.num_replicas
        self._share = 0  # characters for each replica as ranges were made
        self._looks = 0
        self._divide()

    def _divide(self) -> None:
        """Set ranges of prompt lengths of equal width; the last range has no end."""
        width = FIRST_CHARACTERS // max(1, len(self.alive))
        self.ends: list[float] = [width * (at + 1) - 1 for at in range(len(self.alive))]
        if self.ends:
            self.ends[-1] = inf

    def _grow(self) -> None:
        super()._grow()
        self._held.append(0)

    def joined(self, replica: int) -> None:
        super().joined(replica)
        self._divide()

    def gone(self, replica: int) -> None:
        super().gone(replica)
        self._divide()

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        if now_ps // self._interval_ps > self._looks:
            self._looks = now_ps // self._interval_ps
            self._adjust()
        held = [self._held[each] for each in self.alive]
        least, most = min(held), max(held)
        scores = tuple(map(float, self._held))
        apart = most - least > self._options.balance_abs_threshold
        if apart and most > self._options.balance_rel_threshold * least:
            tied = tuple(w for w, count in zip(self.alive, held, strict=True) if count == least)
            return Decision(self.pick(tied), "imbalance", scores, tied)
        place = bisect_left(self.ends, self._length(request))
        return Decision(self.alive[place], "bucket", scores)

    def sent(self, request: RoutedRequest, replica: int, now_ps: int) -> None:
        super().sent(request, replica, now_ps)
        length = self._length(request)
        self._held[replica] += length
        while self._recent and now_ps - self._recent[0][0] > self._interval_ps:
            _, where, gone = self._recent.popleft()
            self._held[where] -= gone
        self._recent.append((now_ps, replica, length))

    def _length(self, request: RoutedRequest) -> int:
        return round(request.length * self._characters)

    def _adjust(self) -> None:
        """Set the ranges so that each replica would have got the same number of characters of the
        recent prompts.
        """
        lengths = sorted(length for _, _, length in self._recent)
        if not lengths:
            return
        share, before = sum(lengths) // len(self.alive), self._share
        if before and before <= 2 * share and share <= 2 * before:
            return
        self._share = share
        ends: list[float] = []
        low = at = 0
        for _ in self.alive[1:]:
            total, end = 0, low + share
            while at < len(lengths):
                total, at = total + lengths[at], at + 1
                if total >= share:
                    end = lengths[at - 1] if lengths[at - 1] > low else end
                    break
            ends.append(end)
            low = end + 1
        self.ends = [*ends, inf]
