"""The peak of the activations in the engine's profiling run, on one GPU, in bytes.

The run is a forward pass over the most tokens of a step. On the last stage the sampler follows,
over as many rows as sequences may run. Memory in use during both counts in both, so

    peak    = scratch + max(vision tower, kept + max(forward, sampler))
    kept    = hidden states, the buffers of fused experts, what a vision tower made (`towers`)
    forward = tokens * dtype bytes * (hidden states alive * hidden size + widest part of a layer)
    sampler = rows * vocabulary * bytes a logit + multiprocessors * vocabulary * 4

The bytes a logit come with the version of the engine (`engine_version`), or are those of
FlashInfer's sampler (`flashinfer_sampler`). A start without the compiler's cache holds at least
scratch and a copy of the embedding. The buffers of fused experts are those of vLLM's modular
kernel. A token's copies for its experts are as wide as the larger of gate-and-up and the hidden
state, and then as wide as their product. Experts in 4-bit blocks go through kernels without
buffers. A stage of a pipeline has another hidden state and its residual, received or to be sent.
Hyper-connections have several hidden states for one, and an indexer gathers keys in a buffer of its
own (v1/attention/backends/mla/indexer.py). SCRATCH_GIB and HIDDEN_ALIVE are fitted to two thirds of
the start-up logs that `kvsim validate logs` was built on (every third one held out; DEBUG logs of
llm-d-planner under 0.19 give the peak by itself).
"""

from kvsim.capacity.deployment import Deployment
from kvsim.capacity.estimate.towers import kept_bytes, peak_bytes
from kvsim.capacity.stage import Stage
from kvsim.model import Attention, CompressedAttention, Experts, LatentAttention, Layer
from kvsim.model.weights import DTYPE_BYTES
from kvsim.plumbing.units import GIB

SCRATCH_GIB = 0.05
HIDDEN_ALIVE = 3.5
PIPELINE_STATES = 2
# Kernels over compressed tokens take no fewer query heads a GPU.
COMPRESSED_HEADS = 64
# An indexer gathers the keys of so many longest sequences at once.
GATHERED_SEQUENCES, GATHERED_KEY_BYTES = 40, 132


def activation_bytes(deployment: Deployment, stage: Stage) -> int:
    """Estimated peak on one GPU of the stage; form and source at the head of this file."""
    model, tokens = deployment.model, deployment.profiled_tokens
    element = DTYPE_BYTES[model.torch_dtype]
    hidden_state = tokens * model.hidden_size * element * model.hidden_streams
    workspace = tokens * element * moe_workspace_width(deployment, stage)
    kept = hidden_state + kept_bytes(deployment, stage)
    if not (stage.first and stage.last):
        kept += PIPELINE_STATES * hidden_state
    kept += gathered_bytes(deployment, stage)
    alive = int((HIDDEN_ALIVE - 1) * hidden_state)
    forward = alive + tokens * element * widest_part(deployment, stage)
    if deployment.version.keeps_moe_workspace:
        kept += workspace
    else:
        forward = max(forward, alive + workspace)
    sampler = sampler_bytes(deployment) if stage.last else 0
    decoder = kept + max(forward, sampler)
    peak = max(peak_bytes(deployment, stage), decoder, _measured_bytes(deployment, stage))
    return int(SCRATCH_GIB * GIB) + peak


def _measured_bytes(deployment: Deployment, stage: Stage) -> int:
    """Bytes of a copy of this GPU's part of the embedding, on which torch.compile benchmarks a
    kernel: Qwen3-14B leaves 1.24 GiB less on its first start (1.45 of the table for 0.2 of
    activations).
    """
    if not (stage.first and deployment.compiles):
        return 0
    model = deployment.model
    rows = model.vocab_size // deployment.tp
    return rows * model.hidden_size * DTYPE_BYTES[model.torch_dtype]


def gathered_bytes(deployment: Deployment, stage: Stage) -> int:
    """Bytes of the buffer into which a sparse indexer's keys are gathered; 0 without an indexer."""
    compressed = [
        mixer.compress_ratio if isinstance(mixer, CompressedAttention) else 1
        for mixer in (layer.mixer for layer in stage.layers)
        if isinstance(mixer, LatentAttention | CompressedAttention) and mixer.index_heads
    ]
    if not compressed:
        return 0
    keys = GATHERED_SEQUENCES * deployment.max_model_len // min(compressed)
    return keys * GATHERED_KEY_BYTES


def sampler_bytes(deployment: Deployment) -> int:
    """Bytes of the logits and their copies, which every GPU holds in full."""
    version, vocab = deployment.version, deployment.model.vocab_size
    rows = min(deployment.max_num_seqs, deployment.max_num_batched_tokens)
    if deployment.on_second_runner:
        return int(rows * vocab * version.runner_bytes_per_logit)
    if deployment.on_flashinfer:
        return int(rows * vocab * version.flashinfer_bytes_per_logit)
    scratch = 4 * version.sampler_scratch_rows * vocab if rows >= SCRATCH_FROM_ROWS else 0
    return int(rows * vocab * version.sampler_bytes_per_logit) + scratch


# Fewer rows are sorted instead.
SCRATCH_FROM_ROWS = 8


def widest_part(deployment: Deployment, stage: Stage) -> int:
    """Elements per token in the widest part of a layer, on one GPU.

    A part is the QKV projections, or gate, up and their product in a dense feed-forward part.

    With experts in 4-bit blocks, also the experts' buffers.
    """
    widest = max(_widest(layer, deployment.tp) for layer in set(stage.layers)) // deployment.tp
    if _in_blocks(deployment):
        return max(widest, _workspace(deployment, stage))
    return widest


def _widest(layer: Layer, tp: int) -> int:
    mixer, part = layer.mixer, layer.feed_forward
    if isinstance(mixer, CompressedAttention):  # queries and what they see
        return 2 * max(mixer.heads, COMPRESSED_HEADS * tp) * mixer.head_dim
    qkv = (mixer.heads + 2 * mixer.kv_heads) * mixer.head_dim if isinstance(mixer, Attention) else 0
    shared = 3 * part.shared_intermediate_size if isinstance(part, Experts) else part.peak_width()
    return max(qkv, shared)


def moe_workspace_width(deployment: Deployment, stage: Stage) -> int:
    """Elements a token takes in the buffers of fused experts, on one GPU; 0 without any."""
    return 0 if _in_blocks(deployment) else _workspace(deployment, stage)


def _in_blocks(deployment: Deployment) -> bool:
    return deployment.model.weight_format.method == "mxfp4"


def _workspace(deployment: Deployment, stage: Stage) -> int:
    widest = 0
    for layer in set(stage.layers):
        part = layer.feed_forward
        if isinstance(part, Experts):
            width, hidden = part.intermediate_size, part.latent_size or deployment.model.hidden_size
            if not deployment.options.enable_expert_parallel:
                width //= deployment.expert_shards
            both = (1 + part.gated) * width
            widest = max(widest, part.experts_per_token * (max(both, hidden) + width))
    return widest
