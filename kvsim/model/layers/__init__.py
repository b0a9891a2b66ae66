"""The parts of a decoder layer: a mixer (attention, MLA, recurrence) and a feed-forward part.

Counts are for one GPU of `tp` (tensor parallel size); `hidden` is the model's hidden size. Key and
value heads that tp does not divide are replicated, and so are MLA's down-projections and routers.
"""

from kvsim.model.layers.absent import Absent
from kvsim.model.layers.attention import Attention
from kvsim.model.layers.compressed import CompressedAttention
from kvsim.model.layers.feed_forward import Dense, Experts
from kvsim.model.layers.latent import LatentAttention
from kvsim.model.layers.layer import FeedForward, Layer, Mixer
from kvsim.model.layers.recurrence import Recurrence

__all__ = [
    "Absent",
    "Attention",
    "CompressedAttention",
    "Dense",
    "Experts",
    "FeedForward",
    "LatentAttention",
    "Layer",
    "Mixer",
    "Recurrence",
]
