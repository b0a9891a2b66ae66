"""Options common to every kind of router."""

from typing import TYPE_CHECKING, NamedTuple, Self

from kvsim.fleet.routers.router import Router, Ties
from kvsim.plumbing.options import Options

if TYPE_CHECKING:
    from kvsim.engine.clock import EngineClock
    from kvsim.engine.ranks import Ranks
    from kvsim.engine.waves import Waves
    from kvsim.fleet.reports import Reports


class FleetView(NamedTuple):
    """The facts about a fleet with which a router is built.

    num_replicas: number of replicas at the start. seed: of the router's draws. block_size,
    num_blocks: tokens in a block and number of blocks of the replicas' prefix caches. characters:
    text characters for each unit of a request's content; 1 if contents are texts.
    """

    num_replicas: int
    seed: int = 0
    block_size: int = 16
    num_blocks: int | None = None
    characters: float = 4.0


class RouterOptions(Options):
    """Options of one router kind; the fields are the keys other than `kind`. Also says which load
    reports the router needs.
    """

    def reports(self, view: FleetView) -> "Reports | None":
        """How load reports reach the router; None: it needs none."""
        return None

    @property
    def report_interval_ps(self) -> int | None:
        """Interval in ps at which the router reads the replicas' memory use; 0: after any step."""
        return None

    def together(self, env: "EngineClock") -> "Waves | Ranks | None":
        """Lockstep of all replicas, which are ranks of one server (`Waves` or `Ranks`); None: each
        replica steps alone.
        """
        return None

    @property
    def lets_step_together(self) -> bool:
        """Whether the replicas are data-parallel ranks that step together."""
        return False

    def process(self, index: int, count: int) -> Self:
        """The options of router process number `index` of `count`, all in front of the same
        replicas.
        """
        return self

    def build(self, view: FleetView) -> Router:
        """A new router without any history."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this


class TyingOptions(RouterOptions):
    """Options of a router that breaks ties. ties: which of equally good replicas is chosen: the
    lowest number, one at random, or round robin.

    Not given: as the real router does.
    """

    ties: Ties | None = None
