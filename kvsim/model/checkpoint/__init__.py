"""Checkpoint sizes: read the headers of safetensors files, and compute the bytes on one GPU."""

from kvsim.model.checkpoint.headers import Tensor, folder_tensors
from kvsim.model.checkpoint.stored import StoredWeights, stored_weights

__all__ = ["StoredWeights", "Tensor", "folder_tensors", "stored_weights"]
