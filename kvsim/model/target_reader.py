"""Drafters that read hidden states of their target (EAGLE-3, DFlash): the weights they need for it.

    joined    a matrix (fc) turns the hidden states of several target layers into one; every GPU
              holds it whole
    widened   EAGLE-3's first layer projects the embedding and that state side by side
    copied    DFlash keeps the key and value projections of its layers once more, in one matrix
    head      its own over `head_vocab` tokens, or the target's; the embedding is the target's

Source: vLLM, model_executor/models/llama_eagle3.py and qwen3_dflash.py.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.model.layers import Attention, Layer
from kvsim.model.weights import Weights

EAGLE_3, DFLASH = "eagle3", "dflash"


class TargetReader(NamedTuple):
    """Extra weights of such a drafter. method: eagle3 or dflash. joined_elements: total elements of
    the hidden states that `fc` joins; 0: none. head_vocab: tokens that its own output head scores;
    None: it uses the target's head.
    """

    method: str
    joined_elements: int
    head_vocab: int | None

    def weights(self, layers: Sequence[Layer], hidden_size: int, tp: int) -> Weights:
        """Parameters on one of `tp` GPUs, in addition to those of the layers."""
        linear = self.joined_elements * hidden_size
        other = hidden_size + (self.head_vocab or 0) * hidden_size // tp
        mixers = [layer.mixer for layer in layers if isinstance(layer.mixer, Attention)]
        if self.method == EAGLE_3 and mixers:
            linear += hidden_size * mixers[0].width_on(tp)
        if self.method == DFLASH:
            kept = [mixer.kv_heads_on(tp) * (mixer.head_dim + mixer.value_dim) for mixer in mixers]
            other += hidden_size * sum(kept)
        return Weights(linear=linear, other=other)
