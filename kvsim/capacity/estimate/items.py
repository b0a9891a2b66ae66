"""The items that the engine takes off its share of the device, as its log lists them."""

from typing import NamedTuple

from kvsim.capacity.deployment import Deployment
from kvsim.capacity.estimate.activations import activation_bytes
from kvsim.capacity.estimate.cuda_graphs import cuda_graph_bytes
from kvsim.capacity.estimate.non_torch import non_torch_bytes


class Items(NamedTuple):
    """Bytes on one GPU."""

    weights: int
    activation: int
    cuda_graph: int
    non_torch: int

    @property
    def total(self) -> int:
        """All that is not KV."""
        return sum(self)


def estimate(deployment: Deployment) -> Items:
    """Every item estimated."""
    return Items(
        weights=deployment.model.weight_bytes(deployment.tp),
        activation=activation_bytes(deployment),
        cuda_graph=cuda_graph_bytes(deployment),
        non_torch=non_torch_bytes(deployment),
    )
