"""The memory that the engine charges for CUDA graphs, on one GPU, in bytes.

It captures a graph for each batch size of a fixed list, once in pieces (all that is not attention)
and once whole for decoding. It measures the first two of each kind and multiplies:

    first capture of both kinds + layers * (sizes in pieces + sizes whole) * bytes a layer and graph

The sizes are vLLM's (config/vllm.py `_set_cudagraph_sizes`): 1, 2, 4, then every 8 up to 255 and
every 16 up to min(2 * max_num_seqs, 512), for gpt-oss 1,024. Whole graphs go up to max_num_seqs.
The figures are medians of the `Estimated ... CUDA graph memory` lines of vLLM 0.19 on H100s, two
thirds of them, by kind of model. A layer with experts launches more kernels, and MLA's first
capture takes a workspace.
"""

from kvsim.capacity.deployment import Deployment
from kvsim.capacity.stage import Stage
from kvsim.model import LatentAttention
from kvsim.plumbing.units import MIB

LARGEST_SIZE = 512
LARGEST_BY_KIND = {"gpt_oss": 1024}
FIRST_MIB, FIRST_MLA_MIB = 360, 560
PIECES_MIB, PIECES_SPARSE_MIB = 0.20, 0.30
WHOLE_MIB, WHOLE_SPARSE_MIB = 0.15, 0.25


def capture_sizes(max_num_seqs: int, largest: int) -> list[int]:
    """Batch sizes, in tokens, that are captured in pieces."""
    largest = min(2 * max_num_seqs, largest)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)]
    return [size for size in sizes if size <= largest]


def cuda_graph_bytes(deployment: Deployment, stage: Stage) -> int:
    """Estimated bytes of a stage's CUDA graphs; 0 if eager, or where the version charges none."""
    version, model = deployment.version, deployment.model
    if deployment.enforce_eager or not version.charges_cuda_graphs:
        return 0
    if deployment.on_second_runner and not version.runner_estimates_graphs:
        return 0
    asked = deployment.max_cudagraph_capture_size
    seqs = deployment.max_num_seqs
    if asked is None:
        sizes = capture_sizes(seqs, LARGEST_BY_KIND.get(model.kind, LARGEST_SIZE))
    else:
        sizes = capture_sizes(asked, asked)
    whole = sum(size <= seqs for size in sizes)
    sparse = model.is_sparse
    pieces_mib = len(sizes) * (PIECES_SPARSE_MIB if sparse else PIECES_MIB)
    whole_mib = whole * (WHOLE_SPARSE_MIB if sparse else WHOLE_MIB)
    latent = any(isinstance(layer.mixer, LatentAttention) for layer in stage.layers)
    first = FIRST_MLA_MIB if latent else FIRST_MIB
    return int((first + len(stage.layers) * (pieces_mib + whole_mib)) * MIB)
