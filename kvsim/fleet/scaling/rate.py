"""Scaling by the arrival rate of requests."""

from pydantic import Field

from kvsim.fleet.scaling.options import AutoscalerOptions, FleetState


class ArrivalRate(AutoscalerOptions):
    """Scale by arrivals. rate_per_s: target requests per second for each replica, measured since
    the last evaluation.
    """

    rate_per_s: float = Field(gt=0)

    def total(self, state: FleetState) -> float:
        return state.num_arrivals / state.interval_s

    @property
    def target(self) -> float:
        return self.rate_per_s
