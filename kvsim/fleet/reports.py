"""How load reports of replicas reach a router: when, and how late.

A replica reports its load when it changes (`heard`). The router asks, with each request, for the
reports that have arrived since (`due`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from kvsim.fleet.load import Load
from kvsim.fleet.views.coordinator import Coordinator, Publication


class Reports(ABC):
    """Load reports of all replicas on their way to a router. needs_tokens: reports include KV
    tokens.
    """

    needs_tokens = False

    @abstractmethod
    def heard(self, replica: int, load: Load, now_ps: int) -> None:
        """A replica reports a load that differs from its last one."""

    @abstractmethod
    def due(self, now_ps: int) -> Sequence[Load] | None:
        """Reports that a router receives now; None: nothing new."""

    @abstractmethod
    def joined(self) -> None:
        """Add a replica."""


class Written(Reports):
    """The current load of each replica, for a router that may read it at any time."""

    needs_tokens = True

    def __init__(self, num_replicas: int) -> None:
        self._loads = [Load()] * num_replicas
        self._any = False

    def heard(self, replica: int, load: Load, now_ps: int) -> None:
        self._loads[replica] = load
        self._any = True

    def due(self, now_ps: int) -> Sequence[Load] | None:
        return self.loads() if self._any else None

    def joined(self) -> None:
        self._loads.append(Load())

    def loads(self) -> list[Load]:
        """The newest load report of each replica."""
        return list(self._loads)


class Scraped(Reports):
    """Loads of replicas at the last scrape of their metrics, every interval_ps; constant between
    two scrapes.
    """

    needs_tokens = True

    def __init__(self, num_replicas: int, interval_ps: int) -> None:
        self._written = Written(num_replicas)
        self._interval_ps = interval_ps
        self._next_ps = interval_ps
        self._taken: Sequence[Load] | None = None

    def _scrape(self, now_ps: int) -> None:
        if self._next_ps < now_ps:
            self._taken = self._written.loads()
            self._next_ps = -(-now_ps // self._interval_ps) * self._interval_ps

    def heard(self, replica: int, load: Load, now_ps: int) -> None:
        self._scrape(now_ps)
        self._written.heard(replica, load, now_ps)

    def due(self, now_ps: int) -> Sequence[Load] | None:
        self._scrape(now_ps)
        taken, self._taken = self._taken, None
        return taken

    def joined(self) -> None:
        self._written.joined()


class Published(Reports):
    """Load counts published by vLLM's DP coordinator. publications: all of them, for the record.

    unread_lost: a publication that is not read before the next report is lost, as in the recordings
    of whole fleets. A real front end reads it.
    """

    unread_lost = False

    def __init__(self, num_replicas: int, interval_ps: int, *, lockstep: bool) -> None:
        self._coordinator = Coordinator(num_replicas, interval_ps, lockstep=lockstep)
        self._steps = [0] * num_replicas
        self.publications: list[Publication] = []

    def heard(self, replica: int, load: Load, now_ps: int) -> None:
        self._steps[replica] += 1
        counts = load.waiting, load.running, load.kv_usage
        self._coordinator.heard(replica, counts, now_ps, (0, self._steps[replica]))
        if self.unread_lost:
            self.publications += self._coordinator.drain(None)

    def due(self, now_ps: int) -> Sequence[Load] | None:
        made = self._coordinator.drain(now_ps)
        self.publications += made
        return [Load(*counts) for counts in made[-1].counts] if made else None

    def joined(self) -> None:
        self._coordinator.joined()
        self._steps.append(0)
