"""Memory of a vision tower in the engine's profiling run, on one GPU, in bytes.

The run encodes as many images of the largest size as the encoder's budget holds, one at least.
Their embeddings, and before the second model runner their pixels, stay until the decoder's pass is
over. Below are the elements alive for each patch at the tower's peak, counted in vLLM 0.33's own
classes (reports/startup-logs). Its attention allocates nothing but its output (FlashAttention):

    pixels, positions, states handed on so far, cosines and sines
    a layer's input and its norm
    attention     3 widths of queries, keys and values, 2 gathered, 2 rotated, 1 out  (split)
                  and 1 width of the projection
    feed-forward  gate and up, and their product                                      (split)
                  and 1 width of the projection

The split ones are shared by the GPUs of a layer.
"""

from kvsim.capacity.deployment import Deployment
from kvsim.capacity.stage import Stage
from kvsim.model import Tower
from kvsim.model.weights import DTYPE_BYTES

# Of towers that are not followed: what they keep, fitted, in hidden states of a step's tokens.
TOWER_STATES = 3
ATTENTION_WIDTHS, ROTARY_WIDTH = 8, 64
# Up to 0.13 Qwen3-VL is profiled with a video of 24,576 * 32^2 pixels in pairs of frames, and keeps
# room for 12.5 tokens where it makes one (models/qwen3_vl.py `get_max_video_tokens`).
VIDEO_TOKENS, VIDEO_TEXT_TOKENS = 12_288, 153_600


def kept_bytes(deployment: Deployment, stage: Stage) -> int:
    """Bytes of vision embeddings and pixels that stay allocated during the decoder's pass."""
    model = deployment.model
    if not (stage.first and model.tower_params):
        return 0
    element, tower = DTYPE_BYTES[model.torch_dtype], model.tower
    if tower is None:
        return TOWER_STATES * deployment.profiled_tokens * model.hidden_size * element
    tokens = _tokens(tower, deployment)
    states = pixels = tokens
    if deployment.version.reserves_video_text and tower.midway_layers:
        states, pixels = VIDEO_TEXT_TOKENS, VIDEO_TOKENS
    kept = states * model.hidden_size * (1 + tower.midway_layers)
    if not deployment.on_second_runner:
        kept += pixels * tower.merged_patches * tower.patch_elements
    return kept * element


def peak_bytes(deployment: Deployment, stage: Stage) -> int:
    """Peak bytes while the vision tower runs; 0 for a tower that is not modelled."""
    model, tp = deployment.model, deployment.tp
    tower = model.tower
    if not stage.first or tower is None:
        return 0
    width, each = tower.width, tower.patch_elements + ROTARY_WIDTH
    each += width * tower.learned_positions
    each += tower.midway_layers * model.hidden_size // tower.merged_patches
    layer = max(ATTENTION_WIDTHS * width, (2 + tower.gated) * tower.inner) // tp
    patches = _tokens(tower, deployment) * tower.merged_patches
    return patches * (each + 3 * width + layer) * DTYPE_BYTES[model.torch_dtype]


def _tokens(tower: Tower, deployment: Deployment) -> int:
    """Tokens of the images that the profiling run encodes."""
    items = max(1, deployment.max_num_batched_tokens // tower.largest_tokens)
    return items * tower.largest_tokens
