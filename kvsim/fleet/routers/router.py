"""The interface of every router: choose a replica for each request, from the information it has by
then.

A router sees requests come (`decide`, `sent`), get their first token (`prefilled`) and leave
(`left`). What engines report reaches it later, by `report` and by events of their prefix caches.
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
    prompt as runs of ids, one id a unit. rank: the replica that the request names itself.
    """

    id: str
    length: int
    content: TokenRuns
    session: str | None = None
    rank: int | None = None


class Decision(NamedTuple):
    """The choice of one request.

    why: the rule that decided. scores: of each candidate replica, in the router's own measure.
    tied: candidates as good as the chosen. seen: what the scores were computed from, a row a
    candidate.
    """

    replica: int
    why: str
    scores: tuple[float, ...] = ()
    tied: tuple[int, ...] = ()
    seen: tuple[Any, ...] = ()


class Router(ABC):
    """One router process. Replicas are numbers from 0 on; `alive` are those that may be chosen.

    open: requests sent to each replica that have not left. needs_first_tokens: `prefilled` is of
    use to it. needs_cache_events: it goes by what prefix caches hold, which it learns by their
    events or, where there is one to ask, by cached_tokens.
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
        """The replica for `request`, which is not booked before `sent`."""

    def sent(self, request: RoutedRequest, replica: int, now_ps: int) -> None:
        """`request` goes to `replica`: the router's own counters and guesses change."""
        self._replica_of[request.id] = replica
        self.open[replica] += 1

    def prefilled(self, id: str, now_ps: int) -> None:
        """The first token of a request has come back."""
        return

    def left(self, id: str, now_ps: int) -> None:
        """A request has all its tokens, was refused, or its replica died."""
        self.open[self._replica_of.pop(id)] -= 1

    def report(self, loads: Sequence[Load], now_ps: int) -> None:
        """The loads of all replicas as the router learns them now."""
        return

    def stored(self, replica: int, blocks: Iterable[Any], now_ps: int) -> None:
        """The prefix cache of a replica has these blocks from now on."""
        return

    def removed(self, replica: int, blocks: Iterable[Any], now_ps: int) -> None:
        """The prefix cache of a replica has lost these blocks."""
        return

    def joined(self, replica: int) -> None:
        """`replica` may be chosen from now on; it may be a new one, with the next number."""
        while len(self.open) <= replica:
            self._grow()
        if replica not in self.alive:
            self.alive = sorted([*self.alive, replica])

    def gone(self, replica: int) -> None:
        """`replica` may not be chosen any more; what it had cached is lost."""
        self.alive = [each for each in self.alive if each != replica]

    def _grow(self) -> None:
        """Counters for one replica more."""
        self.open.append(0)

    def pick(self, tied: Sequence[int]) -> int:
        """One of equals, by the rule of ties."""
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
