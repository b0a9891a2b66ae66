"""Scaling by ongoing requests, waiting and running."""

from pydantic import Field

from kvsim.fleet.scaling.options import AutoscalerOptions, FleetState


class OngoingRequests(AutoscalerOptions):
    """Scale by ongoing requests. ongoing: target number of waiting and running requests for each
    replica (`target_ongoing_requests` of Ray).
    """

    ongoing: float = Field(gt=0)

    def total(self, state: FleetState) -> float:
        return sum(load.waiting + load.running for load in state.loads)

    @property
    def target(self) -> float:
        return self.ongoing
