"""A drafter beside the target: what it weighs and what it caches.

"mtp" is the target's own next-token module: one more layer of its last kind and a projection of two
hidden states into one, with the target's embedding and head. Any other drafter is a model of its
own (EAGLE's head as its config.json describes it).
"""

from dataclasses import replace
from typing import NamedTuple

from kvsim.model import Model
from kvsim.model.kv_cache import LayerCache, layer_caches
from kvsim.model.layers import Absent, Attention, CompressedAttention, LatentAttention, Layer
from kvsim.model.weights import Weights

MTP = "mtp"


class Drafter(NamedTuple):
    """model: None for the target's own module. tokens: drafted ahead of each step."""

    model: Model | None
    tokens: int

    def weight_bytes(self, target: Model, tp: int) -> int:
        """Bytes on one of tp GPUs."""
        if self.model is not None:
            return self.model.weight_bytes(tp)
        layer = _module(target)
        joined = Weights(linear=2 * target.hidden_size**2)
        return target.weight_format.num_bytes(layer.weights(target.hidden_size, tp) + joined)

    def caches(self, target: Model, kv_cache_dtype: str, tp: int) -> tuple[LayerCache, ...]:
        """What its layers keep on one GPU."""
        if self.model is not None:
            return self.model.kv_caches(kv_cache_dtype, tp)
        return layer_caches([_module(target)], target.torch_dtype, kv_cache_dtype, tp)


def _module(target: Model) -> Layer:
    """The last layer that attends to everything, with the last feed-forward part; DeepSeek-V4's
    module attends to a window alone.
    """
    attending = [
        layer
        for layer in target.layers
        if isinstance(layer.mixer, LatentAttention)
        or (isinstance(layer.mixer, Attention) and layer.mixer.window_tokens is None)
    ]
    fed = [layer for layer in target.layers if not isinstance(layer.feed_forward, Absent)]
    mixer = (attending or list(target.layers))[-1].mixer
    if isinstance(mixer, CompressedAttention):
        mixer = replace(mixer, compress_ratio=0, index_heads=0, index_head_dim=0)
    return Layer(mixer, (fed or list(target.layers))[-1].feed_forward)
