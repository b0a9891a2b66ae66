"""Weights as a checkpoint stores them: headers of safetensors files, and what one GPU gets."""

from kvsim.model.checkpoint.headers import Tensor, folder_tensors
from kvsim.model.checkpoint.stored import StoredWeights, stored_weights

__all__ = ["StoredWeights", "Tensor", "folder_tensors", "stored_weights"]
