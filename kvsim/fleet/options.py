"""The table `[fleet]`: how many replicas, what differs between them, and the router."""

from typing import Annotated, Any, Literal

from pydantic import Field

from kvsim.fleet.routers import ROUTERS
from kvsim.fleet.routers.options import RouterOptions
from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.options import Options

AnyRouter = Annotated[RouterOptions, OneOf(ROUTERS, "fleet.router")]
Objective = Literal["ttft_s", "tpot_s", "e2e_s", "queue_s"]
MOST_REPLICAS = 4096


class FleetGroup(Options):
    """Replicas that differ from the scenario's: the tables named here are put over the scenario's
    (`model` key by key; the others take its place, an `allocator` that of all).
    """

    replicas: int = Field(1, ge=1, le=MOST_REPLICAS)
    model: dict[str, Any] | None = None
    device: dict[str, Any] | None = None
    memory: dict[str, Any] | None = None
    allocator: dict[str, Any] | None = None
    scheduler: dict[str, Any] | None = None
    step_time: dict[str, Any] | None = None


class FleetOptions(Options):
    """replicas: behind one router, all as the scenario says; or, instead, groups of them. With
    [disaggregation], each is a deployment of prefill and decode replicas.

    characters_per_token: of a prompt's text, for routers that count characters. regret: ask every
    replica, for every request, what it has cached of the prompt; it costs time with many replicas.
    price_per_gpu_hour: in any currency. objectives: limits in seconds that a request must keep to
    count as goodput.
    """

    replicas: int | None = Field(None, ge=1, le=MOST_REPLICAS)
    group: tuple[FleetGroup, ...] = ()
    router: AnyRouter = Field({"kind": "round-robin"}, validate_default=True)
    characters_per_token: float = Field(4.0, gt=0)
    regret: bool = True
    price_per_gpu_hour: float | None = Field(None, ge=0)
    objectives: dict[Objective, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
