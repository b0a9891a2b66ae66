"""The backend's shape of a simulated model."""

from kvsim.backend.shape import Shape, block_of
from kvsim.model import Attention, Dense, Model
from kvsim.plumbing.errors import InputError


def llama_shape(model: Model, where: str = "--model") -> Shape:
    """The backend's shape of `model`. InputError, which names `where`, if the backend cannot run
    the model.
    """
    layer = model.layers[0]
    mixer, feed_forward = layer.mixer, layer.feed_forward
    if (
        len(set(model.layers)) > 1
        or not isinstance(mixer, Attention)
        or mixer.window_tokens is not None
        or mixer.output_gate
        or not isinstance(feed_forward, Dense)
        or not feed_forward.gated
    ):
        raise InputError(
            "the backend computes Llama-shaped decoders only: equal layers of full attention and "
            "a gated feed-forward network",
            where=where,
            value=model.name,
        )
    block = block_of(model.kind, where)
    return Shape(
        layers=model.num_layers,
        hidden=model.hidden_size,
        heads=mixer.heads,
        kv_heads=mixer.kv_heads,
        head_dim=mixer.head_dim,
        intermediate=feed_forward.intermediate_size,
        vocab=model.vocab_size,
        dtype=model.torch_dtype,
        weights=model.weight_format.method or None,
        **block,
    )


def check_weights(model: Model, where: str = "--model") -> None:
    """InputError for weights in another form than fp8 or the model's dtype."""
    if model.weight_format.method not in ("", "fp8"):
        raise InputError(
            "the backend computes weights in the model's own dtype, or in fp8",
            where=where,
            value=f"{model.name}, {model.weight_format.method}",
            limit=f"{model.torch_dtype}, fp8",
            remedy="name the model without its quantisation, or set model.quantization to none",
        )
