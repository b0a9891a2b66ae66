"""llama.cpp's KV cache of a model with a config.json and no GGUF file."""

from kvsim.llamacpp.gguf_file import GgufModel
from kvsim.llamacpp.sizes import KVLayer
from kvsim.model.layers import Attention
from kvsim.model.model import Model
from kvsim.plumbing.errors import InputError


def model_from_config(model: Model) -> GgufModel:
    """The KV layers of a model with full attention in all layers. InputError for windows, recurrent
    states or compressed keys, since the converter that makes a GGUF file decides what is stored.
    """
    layers = []
    for layer in model.layers:
        mixer = layer.mixer
        plain = isinstance(mixer, Attention) and mixer.window_tokens is None
        if not isinstance(mixer, Attention) or not plain or mixer.chunk_tokens or mixer.index_heads:
            raise InputError(
                "llama.cpp's cache of this model is sized from a GGUF file",
                where="MODEL",
                value=model.name,
                remedy="name MODEL.gguf; without one, models of full attention alone are sized",
            )
        layers.append(KVLayer(mixer.kv_heads * mixer.head_dim, mixer.kv_heads * mixer.value_dim))
    return GgufModel(model.name, model.kind, model.max_position_embeddings, tuple(layers), 0)
