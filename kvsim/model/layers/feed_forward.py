"""Feed-forward parts: one network, or a mixture of experts."""

from dataclasses import dataclass

from kvsim.model.weights import Weights


@dataclass(frozen=True, slots=True)
class Dense:
    """One feed-forward network; gated ones have three matrices, plain ones two."""

    intermediate_size: int
    gated: bool = True

    def weights(self, hidden: int, tp: int) -> Weights:
        """Parameters of the up, down and, if gated, gate matrices."""
        return Weights(linear=(2 + self.gated) * hidden * self.intermediate_size // tp)

    def active(self, hidden: int) -> int:
        """Number of matrix elements by which one token is multiplied, over all GPUs."""
        return self.weights(hidden, 1).linear

    def peak_width(self) -> int:
        """Intermediate elements of one token that exist at the same time: gate, up and their
        product.
        """
        return (1 + 2 * self.gated) * self.intermediate_size


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: each token is routed to `experts_per_token` of `num_experts`.

    shared_intermediate_size: width of the shared experts; 0: none. gated: three matrices for each
    expert, else two. latent_size: width of the routed experts' input, between two projections
    (Nemotron 3); 0: the hidden size.
    """

    intermediate_size: int
    num_experts: int
    experts_per_token: int
    shared_intermediate_size: int = 0
    gated: bool = True
    latent_size: int = 0

    def weights(self, hidden: int, tp: int) -> Weights:
        """Parameters of routed experts; the router (on every GPU) and shared experts count as
        linear.
        """
        matrices, width = 2 + self.gated, self.latent_size or hidden
        shared = matrices * hidden * self.shared_intermediate_size // tp
        routed = matrices * width * self.intermediate_size * self.num_experts // tp
        fixed = hidden * self.num_experts + 2 * hidden * self.latent_size
        return Weights(linear=fixed + shared, expert=routed)

    def active(self, hidden: int) -> int:
        """Number of matrix elements by which one token is multiplied, over all GPUs."""
        matrices, width = 2 + self.gated, self.latent_size or hidden
        routed = matrices * width * self.experts_per_token * self.intermediate_size
        shared = matrices * hidden * self.shared_intermediate_size
        return hidden * self.num_experts + 2 * hidden * self.latent_size + routed + shared

    def peak_width(self) -> int:
        """Intermediate elements of one token that exist at the same time, over the experts it is
        routed to.
        """
        return (1 + 2 * self.gated) * max(
            self.experts_per_token * self.intermediate_size, self.shared_intermediate_size
        )
