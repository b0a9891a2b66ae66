"""The table `[fleet]`: how many replicas, what differs between them, and the router."""

from math import gcd
from typing import Annotated, Any, Literal

from pydantic import Field

from kvsim.fleet.failures import FleetFailure
from kvsim.fleet.routers import ROUTERS
from kvsim.fleet.routers.options import FleetView, RouterOptions
from kvsim.fleet.routers.router import Router
from kvsim.fleet.scaling import AUTOSCALERS
from kvsim.fleet.scaling.options import AutoscalerOptions
from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import PS_PER_S

AnyRouter = Annotated[RouterOptions, OneOf(ROUTERS, "fleet.router")]
AnyAutoscaler = Annotated[AutoscalerOptions, OneOf(AUTOSCALERS, "fleet.autoscaler")]
Objective = Literal["ttft_s", "tpot_s", "e2e_s", "queue_s"]
MOST_REPLICAS = 4096


class FleetGroup(Options):
    """A group of replicas with options of their own. Keys of `model` replace single keys of the
    scenario's. Any other table here replaces the scenario's whole table, and `allocator` all of
    them.
    """

    replicas: int = Field(1, ge=1, le=MOST_REPLICAS)
    model: dict[str, Any] | None = None
    device: dict[str, Any] | None = None
    memory: dict[str, Any] | None = None
    allocator: dict[str, Any] | None = None
    scheduler: dict[str, Any] | None = None
    step_time: dict[str, Any] | None = None
    tier: tuple[dict[str, Any], ...] | None = None


class FleetOptions(Options):
    """A fleet of replicas with a router. replicas: number of replicas, all as the scenario says;
    or, instead, groups of replicas.

    With [disaggregation], each replica is a deployment of prefill and decode replicas. With an
    autoscaler, `replicas` is their number at the start. failure: replicas that fail, and when.

    cells: number of independent parts, each with a router and every cells-th replica. Requests are
    assigned round robin, those of a session to one cell. `kvsim run --backend` runs cells on
    several machines.

    router_processes: number of router processes, to which requests are assigned round robin; each
    sees only its own requests. characters_per_token: of a prompt's text, for routers that count
    characters. regret: ask every replica, for every request, what it has cached of the prompt; it
    costs time with many replicas. price_per_gpu_hour: in any currency. objectives: limits in
    seconds that a request must keep to count as goodput.
    """

    replicas: int | None = Field(None, ge=1, le=MOST_REPLICAS)
    group: tuple[FleetGroup, ...] = ()
    router: AnyRouter = Field({"kind": "round-robin"}, validate_default=True)
    autoscaler: AnyAutoscaler | None = None
    failure: tuple[FleetFailure, ...] = ()
    cells: int = Field(1, ge=1, le=MOST_REPLICAS)
    router_processes: int = Field(1, ge=1, le=256)
    characters_per_token: float = Field(4.0, gt=0)
    regret: bool = True
    price_per_gpu_hour: float | None = Field(None, ge=0)
    objectives: dict[Objective, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)

    def build_router(self, view: FleetView) -> Router:
        """A new router without any history, or several processes of it."""
        if self.router_processes == 1:
            return self.router.build(view)
        from kvsim.fleet.routers.several import SeveralRouters  # few scenarios need it

        return SeveralRouters(self.router, view, self.router_processes)

    @property
    def report_interval_ps(self) -> int | None:
        """Interval in ps at which the router or the autoscaler reads the replicas' memory; 0: after
        any step; None: never.
        """
        scaling, looks = self.autoscaler, self.router.report_interval_ps
        if scaling is None or not scaling.needs_kv_usage:
            return looks
        return gcd(looks or 0, round(scaling.interval_s * PS_PER_S)) if looks != 0 else 0
