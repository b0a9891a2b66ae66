"""The memory that the engine charges for CUDA graphs, on one GPU, in bytes.

It captures a graph for each batch size of a fixed list, once in pieces (all that is not attention)
and once whole for decoding, measures the first two of each kind and multiplies. The sizes are
vLLM's (config/vllm.py `_set_cudagraph_sizes`): 1, 2, 4, then every 8 up to 255 and every 16 up to
min(2 * max_num_seqs, 512). FIRST_GIB and the bytes a layer adds to a graph are fitted to the
`Estimated ... CUDA graph memory` lines of vLLM 0.19 on H100s, two thirds of them.
"""

from kvsim.capacity.deployment import Deployment
from kvsim.capacity.stage import Stage
from kvsim.plumbing.units import GIB, MIB

LARGEST_SIZE = 512
FIRST_GIB = 0.35
PIECES_MIB_PER_LAYER = 0.2
WHOLE_MIB_PER_LAYER = 0.15


def capture_sizes(max_num_seqs: int, largest: int | None = None) -> list[int]:
    """Batch sizes, in tokens, that are captured; largest: None for the engine's default."""
    largest = largest or min(2 * max_num_seqs, LARGEST_SIZE)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)]
    return [size for size in sizes if size <= largest]


def cuda_graph_bytes(deployment: Deployment, stage: Stage) -> int:
    """Estimate of the graphs of a stage; 0 without them, or where the version charges none."""
    version = deployment.version
    if deployment.enforce_eager or not version.charges_cuda_graphs:
        return 0
    if deployment.on_second_runner and not version.runner_estimates_graphs:
        return 0
    sizes = capture_sizes(deployment.max_num_seqs, deployment.max_cudagraph_capture_size)
    whole = sum(size <= deployment.max_num_seqs for size in sizes)
    a_layer = len(sizes) * PIECES_MIB_PER_LAYER + whole * WHOLE_MIB_PER_LAYER
    return int(FIRST_GIB * GIB + len(stage.layers) * a_layer * MIB)
