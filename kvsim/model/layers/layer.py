"""A decoder layer: a mixer and a feed-forward part."""

from dataclasses import dataclass

from kvsim.model.layers.absent import Absent
from kvsim.model.layers.attention import Attention
from kvsim.model.layers.compressed import CompressedAttention
from kvsim.model.layers.feed_forward import Dense, Experts
from kvsim.model.layers.latent import LatentAttention
from kvsim.model.layers.recurrence import Recurrence
from kvsim.model.weights import Weights

Mixer = Attention | LatentAttention | CompressedAttention | Recurrence | Absent
FeedForward = Dense | Experts | Absent


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. extra_params: norms and biases of the whole layer.

    Two parallel mixers (Falcon-H1) are represented as two layers, the first without a feed-forward
    part.
    """

    mixer: Mixer
    feed_forward: FeedForward
    extra_params: int = 0

    def weights(self, hidden: int, tp: int) -> Weights:
        """Parameters of the layer on one of tp GPUs; norms and biases are replicated."""
        mixer = self.mixer.weights(hidden, tp)
        return (
            mixer
            + self.feed_forward.weights(hidden, tp)
            + Weights(other=self.extra_params, mixer=mixer.linear)
        )
