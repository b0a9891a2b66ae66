"""Scaling by the rate of requests."""

from pydantic import Field

from kvsim.fleet.scaling.options import AutoscalerOptions, FleetState


class ArrivalRate(AutoscalerOptions):
    """rate_per_s: requests per second for each replica, over the time since the last look."""

    rate_per_s: float = Field(gt=0)

    def total(self, state: FleetState) -> float:
        return state.num_arrivals / state.interval_s

    @property
    def target(self) -> float:
        return self.rate_per_s
