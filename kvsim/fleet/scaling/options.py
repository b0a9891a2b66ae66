"""Options of every autoscaler: a measure of the load, its target, and common limits."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from pydantic import Field, model_validator

from kvsim.fleet.load import Load
from kvsim.plumbing.options import Options


class FleetState(NamedTuple):
    """The load that an autoscaler reads.

    loads: reports of the replicas that take requests. num_arrivals: number of requests that reached
    the router in the last interval_s seconds.
    """

    loads: Sequence[Load]
    num_arrivals: int
    interval_s: float


class AutoscalerOptions(Options):
    """Wanted replicas = total load / target load of one replica, rounded up, as Kubernetes'
    HorizontalPodAutoscaler computes it.

    min_replicas, max_replicas: limits. interval_s: seconds between two evaluations. tolerance:
    relative distance from the target within which nothing changes. scale_down_after_s: replicas are
    removed down to the largest number wanted in this many seconds. An evaluation at most doubles
    the replicas, or adds 4 if that is more. start_up_s: from the start of a replica until it takes
    requests, with an empty cache; its GPUs count from the start. group: number of the
    [[fleet.group]] that new replicas belong to.
    """

    needs_kv_usage: ClassVar[bool] = False

    min_replicas: int = Field(1, ge=1, le=4096)
    max_replicas: int = Field(10, ge=1, le=4096)
    interval_s: float = Field(15.0, ge=0.001)
    tolerance: float = Field(0.1, ge=0)
    scale_down_after_s: float = Field(300.0, ge=0)
    start_up_s: float = Field(60.0, ge=0)
    group: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> "AutoscalerOptions":
        if self.max_replicas < self.min_replicas:
            raise ValueError("max_replicas must not be below min_replicas")
        return self

    def total(self, state: FleetState) -> float:
        """The summed load of all replicas, in the unit of `target`."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this

    @property
    def target(self) -> float:
        """The target load of one replica."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this
