"""The interface of every router: choose a replica for each request, from what the router knows at
that time.

A router is called when a request arrives (`decide`, `sent`), gets its first token (`prefilled`) and
leaves (`left`). Load reports of engines arrive later, by `report`, and changes of their prefix
caches by `stored` and `removed`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Literal, NamedTuple

from kvsim.fleet.load import Load
from kvsim.request import TokenRuns

Ties = Literal["lowest", "random", "rotate"]


class RoutedRequest(NamedTuple):
    """A request as a router sees it.

    length: units of its prompt (tokens, or characters where a recording has text). content: the
    prompt as runs of ids, one id a unit. rank: the replica that the client requested, if any.
    """

    id: str
    length: int
    content: TokenRuns
    session: str | None = None
    rank: int | None = None


class Decision(NamedTuple):
    """A router's choice for one request.

    why: the rule that decided. scores: score of each candidate replica, in the router's own
    measure. tied: candidates with an equal score. seen: the inputs of the scores, one row for each
    candidate.
    """

    replica: int
    why: str
    scores: tuple[float, ...] = ()
    tied: tuple[int, ...] = ()
    seen: tuple[Any, ...] = ()


class Router(ABC):
    """One router process. Replicas are numbered from 0; `alive` are the replicas that may be
    chosen.

    open: number of requests sent to each replica that have not left. needs_first_tokens: the router
    uses `prefilled`. needs_cache_events: the router uses the contents of prefix caches, from their
    events or, if available, by `cached_tokens`.
    """

    needs_first_tokens = False
    needs_cache_events = False

    def __init__(self, num_replicas: int, ties: Ties = "lowest", seed: int = 0) -> None:
        self.alive = list(range(num_replicas))
        self.open = [0] * num_replicas
        self.cached_tokens: Callable[[int, RoutedRequest], int] | None = None
        self._replica_of: dict[str, int] = {}
        self._ties = ties
        self._turn = 0
        self.random = Random(seed)

    @abstractmethod
    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        """The replica for `request`; counters change only with `sent`."""

    def sent(self, request: RoutedRequest, replica: int, now_ps: int) -> None:
        """Count `request` as sent to `replica`, and record its prompt there if the router tracks
        prompts.
        """
        self._replica_of[request.id] = replica
        self.open[replica] += 1

    def prefilled(self, id: str, now_ps: int) -> None:
        """Notify: the first token of a request has been returned."""
        return

    def left(self, id: str, now_ps: int) -> None:
        """Notify: a request is finished, was refused, or its replica failed."""
        self.open[self._replica_of.pop(id)] -= 1

    def report(self, loads: Sequence[Load], now_ps: int) -> None:
        """Receive the newest load report of all replicas."""
        return

    def stored(self, replica: int, blocks: Iterable[Any], now_ps: int) -> None:
        """Notify: `blocks` are now in the prefix cache of a replica."""
        return

    def removed(self, replica: int, blocks: Iterable[Any], now_ps: int) -> None:
        """Notify: `blocks` are no longer in the prefix cache of a replica."""
        return

    def joined(self, replica: int) -> None:
        """`replica` may be chosen from now on; it may be a new one, with the next number."""
        while len(self.open) <= replica:
            self._grow()
        if replica not in self.alive:
            self.alive = sorted([*self.alive, replica])

    def gone(self, replica: int) -> None:
        """`replica` may not be chosen any more; its cached blocks are lost."""
        self.alive = [each for each in self.alive if each != replica]

    def _grow(self) -> None:
        """Add counters for one more replica."""
        self.open.append(0)

    def pick(self, tied: Sequence[int]) -> int:
        """Choose one of equally good replicas, by the option `ties`."""
        if len(tied) == 1 or self._ties == "lowest":
            return tied[0]
        if self._ties == "random":
            return tied[self.random.randrange(len(tied))]
        self._turn += 1
        return tied[(self._turn - 1) % len(tied)]

    def least_open(self) -> tuple[int, ...]:
        """The replicas with the fewest open requests."""
        if len(self.alive) == len(self.open):
            fewest = min(self.open)
            if self.open.count(fewest) == 1:
                return (self.open.index(fewest),)
        else:
            fewest = min(self.open[each] for each in self.alive)
        return tuple(each for each in self.alive if self.open[each] == fewest)
