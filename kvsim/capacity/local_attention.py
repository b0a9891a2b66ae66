"""Local attention: queries see only their own chunk, and vLLM frees the chunks before."""

from kvsim.model import Model
from kvsim.model.layers import Attention
from kvsim.vllm.rules import SizingRules


def freed_chunks(model: Model, version: SizingRules, longest_tokens: int) -> list[int]:
    """Tokens of a chunk, of each layer of which this version gives some of a sequence back."""
    if not version.frees_chunks:
        return []
    mixers = (layer.mixer for layer in model.layers)
    chunks = [mixer.chunk_tokens for mixer in mixers if isinstance(mixer, Attention)]
    return [tokens for tokens in chunks if tokens and tokens < longest_tokens]
