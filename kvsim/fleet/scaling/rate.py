"""Scaling by the arrival rate of requests."""

from collections.abc import Sequence

from pydantic import Field

from kvsim.fleet.scaling.options import AutoscalerOptions, FleetState


class ArrivalRate(AutoscalerOptions):
    """Scale by arrivals. rate_per_s: target requests per second for each replica, measured since
    the last evaluation.
    """

    rate_per_s: float = Field(gt=0)

    def needed(self, state: FleetState) -> Sequence[float]:
        return [state.rate_per_s / self.rate_per_s]
