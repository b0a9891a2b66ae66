"""Scaling by ongoing requests, waiting and running."""

from collections.abc import Sequence

from pydantic import Field

from kvsim.fleet.scaling.options import AutoscalerOptions, FleetState


class OngoingRequests(AutoscalerOptions):
    """Scale by ongoing requests. ongoing: target number of waiting and running requests for each
    replica (`target_ongoing_requests` of Ray).
    """

    ongoing: float = Field(gt=0)

    def needed(self, state: FleetState) -> Sequence[float]:
        return [state.ongoing / self.ongoing]
