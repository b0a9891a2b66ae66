"""Memory that the engine reserves for max_loras LoRA adapters.

Each linear matrix of n inputs and m outputs gets rank * (n + m) parameters per adapter, in the
model's dtype. The inputs' half is on every GPU (vLLM's lora/layers, fully_sharded_loras off).
"""

from typing import NamedTuple

from kvsim.model import Attention, Dense, LatentAttention, Model
from kvsim.model.weights import DTYPE_BYTES


class Adapters(NamedTuple):
    """LoRA adapters by vLLM's flags. max_loras: adapters loaded at once; max_lora_rank: rank of
    each.
    """

    max_loras: int
    max_lora_rank: int

    def num_bytes(self, model: Model, tp: int) -> int:
        """Bytes that all adapters take on one of tp GPUs."""
        total = 0
        for layer in model.layers:
            for inputs, outputs in _matrices(model, layer.mixer, tp):
                total += inputs + outputs
            for inputs, outputs in _matrices(model, layer.feed_forward, tp):
                total += inputs + outputs
        return total * self.max_lora_rank * self.max_loras * DTYPE_BYTES[model.torch_dtype]


def _matrices(model: Model, part: object, tp: int) -> list[tuple[int, int]]:
    """(inputs, outputs) of each matrix that an adapter changes, on one GPU; never of experts."""
    hidden = model.hidden_size
    if isinstance(part, Attention):
        kept = part.kv_heads_on(tp)
        query = part.heads // tp * part.head_dim
        return [
            (hidden, query),
            (hidden, kept * part.head_dim),
            (hidden, kept * part.value_dim),
            (part.heads // tp * part.value_dim, hidden),
        ]
    if isinstance(part, LatentAttention):
        output = part.heads // tp * part.v_head_dim
        return [(hidden, part.kv_lora_rank + part.rope_head_dim), (output, hidden)]
    if isinstance(part, Dense):
        width = part.intermediate_size // tp
        return [(hidden, width)] * (1 + part.gated) + [(width, hidden)]
    return []
