"""Scaling by queue length: the number of waiting requests."""

from collections.abc import Sequence

from pydantic import Field

from kvsim.fleet.scaling.options import AutoscalerOptions, FleetState


class QueueLength(AutoscalerOptions):
    """Scale by queue length. waiting: target number of queued requests
    (`vllm:num_requests_waiting`) for each replica.
    """

    waiting: float = Field(5.0, gt=0)

    def needed(self, state: FleetState) -> Sequence[float]:
        return [state.waiting / self.waiting]
