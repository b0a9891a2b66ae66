"""Build the decoder layers that a config.json describes, in order."""

from kvsim.model.hf.attention import attention
from kvsim.model.hf.blocks import has_part
from kvsim.model.hf.extras import layer_extras
from kvsim.model.hf.feed_forward import feed_forward
from kvsim.model.hf.keys import Keys
from kvsim.model.hf.layer_kinds import BOTH, CONV, FULL, LINEAR, MLP, MOE, layer_kinds
from kvsim.model.hf.recurrent import recurrence, short_convolution
from kvsim.model.layers import Absent, Dense, FeedForward, Layer, Mixer

ALONE = ("mamba", "mamba2", "falcon_mamba")  # a layer is its mixer
ONE_PART = (*ALONE, "nemotron_h")


def decoder_layers(keys: Keys, dtype: str) -> tuple[Layer, ...]:
    """All decoder layers. dtype: the model's. Raises InputError for a config that cannot be
    understood.
    """
    layers: list[Layer] = []
    for index, kind in enumerate(layer_kinds(keys)):
        if kind == BOTH:
            layers.extend(_side_by_side(keys, dtype, index))
            continue
        if keys.kind == "longcat_flash":
            layers.extend(_doubled(keys, index))
            continue
        mixer = _mixer(keys, kind, dtype, index)
        part: FeedForward = Absent()
        alone = _mixer_alone(keys) and not isinstance(mixer, Absent)
        if has_part(keys, index, "ffn") and not alone:
            part = feed_forward(keys, kind, index)
        layers.append(Layer(mixer, part, layer_extras(keys, mixer, part)))
    return tuple(layers)


def _mixer(keys: Keys, kind: str, dtype: str, index: int) -> Mixer:
    if kind in (MOE, MLP) or not has_part(keys, index, "attention"):
        return Absent()
    if kind == LINEAR:
        return recurrence(keys, dtype)
    if kind == CONV:
        return short_convolution(keys)
    return attention(keys, kind, index)


def _doubled(keys: Keys, index: int) -> tuple[Layer, ...]:
    """The parts of a LongCat-Flash layer: attention and a dense part, twice, with experts parallel
    to the first dense part.
    """
    mixer = attention(keys, FULL, index)
    dense, experts = Dense(keys.integer("ffn_hidden_size")), feed_forward(keys, MOE, index)
    return (
        Layer(mixer, experts, layer_extras(keys, mixer, experts)),
        Layer(mixer, dense, layer_extras(keys, mixer, dense)),
        Layer(Absent(), dense, 0),
    )


def _mixer_alone(keys: Keys) -> bool:
    return keys.kind in ONE_PART or keys.kind == "zamba2"


def _side_by_side(keys: Keys, dtype: str, index: int) -> tuple[Layer, Layer]:
    """Parallel attention and recurrence on one input, returned as two layers; the first has only
    its mixer.

    In Falcon-H1 a feed-forward part follows; Zamba 2's attention is shared (`extras`).
    """
    mixer, state = attention(keys, "full_attention", index), recurrence(keys, dtype)
    nothing = Absent()
    part = nothing if keys.kind == "zamba2" else feed_forward(keys, BOTH, index)
    return (
        Layer(mixer, nothing, layer_extras(keys, mixer, nothing)),
        Layer(state, part, layer_extras(keys, state, part)),
    )
