"""Memory items that vLLM subtracts from its share of the device (gpu_memory_utilization), as its
log lists them.
"""

from typing import NamedTuple

from kvsim.capacity.deployment import Deployment
from kvsim.capacity.estimate.activations import activation_bytes
from kvsim.capacity.estimate.cuda_graphs import cuda_graph_bytes
from kvsim.capacity.estimate.non_torch import non_torch_bytes
from kvsim.capacity.estimate.weights import weight_bytes
from kvsim.capacity.stage import Stage


class Items(NamedTuple):
    """Items of memory, in bytes on one GPU."""

    weights: int
    activation: int
    cuda_graph: int
    non_torch: int

    @property
    def total(self) -> int:
        """Bytes of all items: everything but KV."""
        return sum(self)


def estimate(deployment: Deployment, stage: Stage) -> Items:
    """Estimates of every item on a GPU of this stage; weights include drafter and adapters."""
    model, tp = deployment.model, deployment.tp
    weights = weight_bytes(deployment, stage)
    if deployment.drafter is not None and stage.last:
        weights += deployment.drafter.weight_bytes(model, tp)
    if deployment.adapters is not None:
        weights += deployment.adapters.num_bytes(model, tp) * len(stage.layers) // len(model.layers)
    return Items(
        weights=weights,
        activation=activation_bytes(deployment, stage),
        cuda_graph=cuda_graph_bytes(deployment, stage),
        non_torch=non_torch_bytes(deployment),
    )
