"""The peak of the activations in the engine's profiling run, on one GPU, in bytes.

The run is a forward pass over the most tokens of a step, then the sampler over as many rows as
sequences may run. What is kept between the two counts in both, so

    peak    = scratch + kept + max(forward, sampler)
    kept    = hidden states, the buffers of fused experts, the output of a vision tower
    forward = tokens * dtype bytes * (hidden states alive * hidden size + widest part of a layer)
    sampler = rows * vocabulary * bytes a logit + multiprocessors * vocabulary * 4

The bytes a logit come with the version of the engine (`engine_version`). The buffers of fused
experts are those of vLLM's modular kernel: a token's copies for its experts, as wide as the larger
of gate-and-up and the hidden state, and as wide as their product. SCRATCH_GIB and HIDDEN_ALIVE are
fitted to two thirds of the start-up logs that `kvsim validate logs` was built on (every third one
held out; DEBUG logs of llm-d-planner under 0.19 give the peak by itself).
"""

from kvsim.capacity.deployment import Deployment
from kvsim.model import Attention, Experts, Layer
from kvsim.model.weights import DTYPE_BYTES
from kvsim.plumbing.units import GIB

SCRATCH_GIB = 0.05
HIDDEN_ALIVE = 3.5


def activation_bytes(deployment: Deployment) -> int:
    """Estimated peak on one GPU; form and source at the head of this file."""
    model, tokens = deployment.model, deployment.profiled_tokens
    element = DTYPE_BYTES[model.torch_dtype]
    hidden_state = tokens * model.hidden_size * element
    workspace = tokens * element * moe_workspace_width(deployment)
    kept = hidden_state + (workspace if deployment.version.keeps_moe_workspace else 0)
    alive = int((HIDDEN_ALIVE - 1) * hidden_state)
    forward = alive + tokens * element * widest_part(deployment)
    if not deployment.version.keeps_moe_workspace:
        forward = max(forward, alive + workspace)
    return int(SCRATCH_GIB * GIB) + kept + max(forward, sampler_bytes(deployment))


def sampler_bytes(deployment: Deployment) -> int:
    """Logits and their copies, which every GPU holds in full."""
    version, vocab = deployment.version, deployment.model.vocab_size
    rows = min(deployment.max_num_seqs, deployment.max_num_batched_tokens)
    if deployment.on_second_runner:
        return int(rows * vocab * version.runner_bytes_per_logit)
    return int(
        rows * vocab * version.sampler_bytes_per_logit + 4 * version.sampler_scratch_rows * vocab
    )


def widest_part(deployment: Deployment) -> int:
    """Elements a token has in the widest part of a layer, on one GPU: projections of attention or
    gate, up and product of a dense feed-forward part.
    """
    return max(_widest(layer) for layer in set(deployment.model.layers)) // deployment.tp


def _widest(layer: Layer) -> int:
    mixer, part = layer.mixer, layer.feed_forward
    qkv = (mixer.heads + 2 * mixer.kv_heads) * mixer.head_dim if isinstance(mixer, Attention) else 0
    shared = 3 * part.shared_intermediate_size if isinstance(part, Experts) else part.peak_width()
    return max(qkv, shared)


def moe_workspace_width(deployment: Deployment) -> int:
    """Elements a token takes in the buffers of fused experts, on one GPU; 0 without experts."""
    widest = 0
    for layer in set(deployment.model.layers):
        part = layer.feed_forward
        if isinstance(part, Experts):
            width = part.intermediate_size // deployment.tp
            copies = part.experts_per_token
            widest = max(widest, copies * (max(2 * width, deployment.model.hidden_size) + width))
    return widest
