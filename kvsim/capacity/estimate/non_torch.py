"""What the process takes outside torch's allocator on one GPU: the CUDA context's growth, kernels'
own buffers and, on several GPUs, those of NCCL and of the custom all-reduce.

The figures come with the version of the engine (`engine_version`), read off its start-up logs.
"""

from kvsim.capacity.deployment import Deployment
from kvsim.plumbing.units import GIB


def non_torch_bytes(deployment: Deployment) -> int:
    """Estimate for one GPU."""
    version, tp = deployment.version, deployment.tp
    if tp == 1:
        return int(version.non_torch_gib * GIB)
    more = (tp - 2) * version.non_torch_more_gib
    return int((version.non_torch_several_gib + more) * GIB)
