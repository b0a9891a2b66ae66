"""Options of every autoscaler: a measure of the load, its target, and common limits."""

from collections.abc import Sequence
from typing import NamedTuple

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

    @property
    def waiting(self) -> int:
        """Number of requests that wait at replicas."""
        return sum(load.waiting for load in self.loads)

    @property
    def ongoing(self) -> int:
        """Number of requests that wait or run at replicas."""
        return sum(load.waiting + load.running for load in self.loads)

    @property
    def kv_usage(self) -> float:
        """KV pool usage (0 to 1), summed over replicas."""
        return sum(load.kv_usage for load in self.loads)

    @property
    def rate_per_s(self) -> float:
        """Requests per second that reached the router in the last interval."""
        return self.num_arrivals / self.interval_s


class AutoscalerOptions(Options):
    """Wanted replicas = total load / target load of one replica, rounded up, as Kubernetes'
    HorizontalPodAutoscaler computes it.

    min_replicas, max_replicas: limits. interval_s: seconds between two evaluations. tolerance:
    relative distance from the target within which nothing changes. scale_down_after_s: replicas are
    removed down to the largest number wanted in this many seconds. scale_up_pods, scale_up_percent:
    most replicas added in scale_up_period_s seconds (by default interval_s), like the policies of
    `behavior.scaleUp`. The first is a number, the second a percentage of the replicas at the start
    of the period; the larger of the two applies. start_up_s: from the start of a replica until it
    takes requests, with an empty cache; its GPUs count from the start. group: number of the
    [[fleet.group]] that new replicas belong to.
    """

    min_replicas: int = Field(1, ge=1, le=4096)
    max_replicas: int = Field(10, ge=1, le=4096)
    interval_s: float = Field(15.0, ge=0.001)
    tolerance: float = Field(0.1, ge=0)
    scale_down_after_s: float = Field(300.0, ge=0)
    scale_up_pods: int = Field(4, ge=1, le=4096)
    scale_up_percent: float = Field(100.0, ge=0)
    scale_up_period_s: float | None = Field(None, ge=0.001)
    start_up_s: float = Field(60.0, ge=0)
    group: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> "AutoscalerOptions":
        if self.max_replicas < self.min_replicas:
            raise ValueError("max_replicas must not be below min_replicas")
        return self

    @property
    def needs_kv_usage(self) -> bool:
        """Whether a target is KV pool usage, which replicas must then report."""
        return False

    def needed(self, state: FleetState) -> Sequence[float]:
        """Replicas that each target needs, not rounded: total load / target load."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this
