"""Scaling by requests in hand: those that wait and those that run."""

from pydantic import Field

from kvsim.fleet.scaling.options import AutoscalerOptions, FleetState


class OngoingRequests(AutoscalerOptions):
    """ongoing: requests that wait or run, for each replica (`target_ongoing_requests` of Ray)."""

    ongoing: float = Field(gt=0)

    def total(self, state: FleetState) -> float:
        return sum(load.waiting + load.running for load in state.loads)

    @property
    def target(self) -> float:
        return self.ongoing
