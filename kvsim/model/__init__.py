"""Models: from a Hugging Face config.json or a built-in name to weights, FLOPs and KV bytes."""

from kvsim.model.catalogue import model_names, named_model
from kvsim.model.kv_formats import KV_CACHE_DTYPES
from kvsim.model.layers import (
    Attention,
    CompressedAttention,
    Dense,
    Experts,
    LatentAttention,
    Layer,
    Recurrence,
)
from kvsim.model.model import Model
from kvsim.model.options import ModelOptions
from kvsim.model.tower import Tower
from kvsim.model.weights import QUANTIZATIONS, WeightFormat, Weights

__all__ = [
    "KV_CACHE_DTYPES",
    "QUANTIZATIONS",
    "Attention",
    "CompressedAttention",
    "Dense",
    "Experts",
    "LatentAttention",
    "Layer",
    "Model",
    "ModelOptions",
    "Recurrence",
    "Tower",
    "WeightFormat",
    "Weights",
    "model_names",
    "named_model",
]
