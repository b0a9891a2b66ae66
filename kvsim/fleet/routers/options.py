"""Options of every kind of router."""

from typing import TYPE_CHECKING, NamedTuple, Self

from kvsim.fleet.routers.router import Router, Ties
from kvsim.plumbing.options import Options

if TYPE_CHECKING:
    from kvsim.fleet.reports import Reports


class FleetView(NamedTuple):
    """The view for which a router is built.

    num_replicas: at the start. seed: of its draws. block_size, num_blocks: of the replicas' prefix
    caches, in tokens and blocks. characters: text characters for each unit of a request's content:
    1 where contents are texts.
    """

    num_replicas: int
    seed: int = 0
    block_size: int = 16
    num_blocks: int | None = None
    characters: float = 4.0


class RouterOptions(Options):
    """The keys of a kind other than `kind`, and the reports that the router needs of its
    replicas.
    """

    def reports(self, view: FleetView) -> "Reports | None":
        """How what replicas report reaches the router; None: it asks for nothing."""
        return None

    @property
    def report_interval_ps(self) -> int | None:
        """Interval in ps at which it reads the replicas' memory; 0: after any step."""
        return None

    @property
    def sync_steps(self) -> int | None:
        """Steps between two agreements of replicas that step together; None: each steps alone."""
        return None

    def process(self, index: int, count: int) -> Self:
        """The options of one of several router processes before the same replicas."""
        return self

    def build(self, view: FleetView) -> Router:
        """A router that has seen nothing."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this


class TyingOptions(RouterOptions):
    """ties: which of equally good replicas is chosen: the lowest number, one at random, or each in
    turn.

    Left out: as the real router does.
    """

    ties: Ties | None = None
