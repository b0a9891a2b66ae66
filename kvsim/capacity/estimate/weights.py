"""Memory on one GPU of a pipeline stage once the model is loaded.

The GPU has a share of the weights, as stored, and tensors that the engine derives from weights.

    layers      split over the tensor parallel GPUs; routed experts over all that share them, with
                data parallel ranks too
    tables      the embedding on the first stage, the head on the last, rows padded to 64
    towers      split like the layers, on the first stage
    rotation    cosines and sines of every position, in the model's dtype
    absorbed    MLA's up-projections once more, in the form that decoding multiplies with
    padding     experts in 4-bit blocks: their width up to 128, the hidden state's up to 256
"""

from dataclasses import replace

from kvsim.capacity.deployment import Deployment
from kvsim.capacity.stage import Stage
from kvsim.model import Experts, LatentAttention, Layer, Model, Weights
from kvsim.model.weights import DTYPE_BYTES
from kvsim.plumbing.units import ceil_div

VOCABULARY_ROWS = 64
PADDED_WIDTH, PADDED_HIDDEN = 128, 256


def weight_bytes(deployment: Deployment, stage: Stage) -> int:
    """Bytes of weights and derived tensors on one GPU of this stage."""
    model, tp = deployment.model, deployment.tp
    element = DTYPE_BYTES[model.torch_dtype]
    made = model.rotary_elements * deployment.version.rotary_factor(model.kind, model.mrope)
    made += sum(_absorbed(layer) for layer in stage.layers) // tp
    return _held(deployment, stage) + made * element


def _held(deployment: Deployment, stage: Stage) -> int:
    """Bytes of the weights: as the checkpoint stores them, if its headers are known."""
    model, tp = deployment.model, deployment.tp
    if model.stored is not None:
        shards, at, count = deployment.expert_shards, stage.start, len(stage.layers)
        padding = _expert_padding(deployment, stage)
        return model.stored.num_bytes(tp, shards, start=at, count=count, expert_padding=padding)
    tables, head = _tables(model, stage)
    total = Weights(other=tables // tp + model.extra_params, head=head // tp)
    if stage.first:
        total += Weights(other=model.tower_params // tp)
    for layer in stage.layers:
        one = layer.weights(model.hidden_size, tp)
        experts = _expert_params(deployment, layer)
        total += replace(one, expert=experts)
    return model.weight_format.num_bytes(total)


def _expert_padding(deployment: Deployment, stage: Stage) -> float:
    """Bytes that kernels need for routed experts divided by their stored bytes; 1: no padding."""
    for layer in stage.layers:
        if isinstance(layer.feed_forward, Experts):
            whole = layer.feed_forward.weights(deployment.model.hidden_size, 1).expert
            return _expert_params(deployment, layer) * deployment.expert_shards / whole
    return 1.0


def _tables(model: Model, stage: Stage) -> tuple[int, int]:
    """(parameters of the embedding and the LM head on this stage, those of an untied LM head)."""
    rows = VOCABULARY_ROWS * ceil_div(model.vocab_size, VOCABULARY_ROWS)
    tied = stage.first and stage.last and model.tie_word_embeddings
    each = rows * model.hidden_size
    own = stage.last and not model.tie_word_embeddings
    return each * (stage.first + stage.last - tied), each * own


def _expert_params(deployment: Deployment, layer: Layer) -> int:
    """Parameters of a layer's routed experts on one GPU, padding included."""
    part, model = layer.feed_forward, deployment.model
    if not isinstance(part, Experts):
        return 0
    shards = deployment.expert_shards
    whole = part.weights(model.hidden_size, 1).expert
    if model.weight_format.method != "mxfp4":
        return whole // shards
    width = part.intermediate_size
    if not deployment.options.enable_expert_parallel:
        width = width // shards
        shards = 1
    padded = PADDED_WIDTH * ceil_div(width, PADDED_WIDTH)
    hidden = PADDED_HIDDEN * ceil_div(model.hidden_size, PADDED_HIDDEN)
    return whole * padded * hidden // (part.intermediate_size * model.hidden_size * shards)


def _absorbed(layer: Layer) -> int:
    mixer = layer.mixer
    if not isinstance(mixer, LatentAttention):
        return 0
    return mixer.kv_lora_rank * mixer.heads * (mixer.nope_head_dim + mixer.v_head_dim)
