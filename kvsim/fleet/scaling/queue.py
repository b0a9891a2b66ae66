"""Scaling by queue length: the number of waiting requests."""

from pydantic import Field

from kvsim.fleet.scaling.options import AutoscalerOptions, FleetState


class QueueLength(AutoscalerOptions):
    """Scale by queue length. waiting: target number of queued requests
    (`vllm:num_requests_waiting`) for each replica.
    """

    waiting: float = Field(5.0, gt=0)

    def total(self, state: FleetState) -> float:
        return sum(load.waiting for load in state.loads)

    @property
    def target(self) -> float:
        return self.waiting
