"""Memory of the process outside torch's allocator on one GPU, above what is in use at the engine's
first memory snapshot.

    one GPU                     kernels, by version
    several, up to NVLink 3     by version, with and without NVLink
    several, NVLink 4 and on    kernels + communicators of NCCL + the fused all-reduce's workspace

By version: read off start-up logs. The parts on NVLink 4 come from the sources of NCCL 2.26 and
2.27, vLLM 0.9 to 0.22 and FlashInfer 0.6. The rest comes from the memory in use at the start of
vLLM 0.19 in DEBUG logs on H100s (reports/startup-logs). That is 0.51 GiB on one GPU, and 0.92 more
with one communicator of two GPUs, 0.97 with one of four. A second one adds 0.48 and 0.52. The
logits are gathered by a communicator that the profiling run opens. Those of layers and stages are
open before the engine first looks, since 0.11.
"""

from kvsim.capacity.deployment import Deployment
from kvsim.device import Device
from kvsim.plumbing.units import GIB, MIB

# A PCIe 5 link has 64 GB/s a direction; the bridges of two RTX 3090s or A40s have 56.
NVLINK_BYTES_PER_S = 100 * 10**9
NVLINK4_BYTES_PER_S, NVLINK5_BYTES_PER_S = 400 * 10**9, 900 * 10**9
# What the engine's own processes take of memory that is the host's too, while it profiles: by logs
# of one DGX Spark (0.75 to 1.1), held against others'.
HOST_GIB = 0.8
KERNELS_GIB = 0.09  # fitted to logs of two H100s
FIRST_GIB, COMMUNICATOR_GIB, FURTHER_GPU_GIB = 0.44, 0.48, 0.02
# Connected at once, a communicator of more than two GPUs has a second neighbour on each channel,
# with a buffer for sending and one for receiving, and buffers of NVLink SHARP for each GPU.
CHANNELS, SEND_MIB, RECEIVE_MIB = 24, 2, 10
SHARP_MIB = 32
CUSTOM_ALL_REDUCE_MIB = 16
# Largest tensor of the fused all-reduce in MiB, by the GPUs that split a layer.
FUSED_MIB = {2: 64, 4: 2, 8: 0.5}
FUSED_NVLINK5_MIB = {2: 64, 4: 32, 8: 1}
# It has three buffers, in all four times as large as all GPUs' tensors.
FUSED_BUFFERS, FUSED_TENSORS, GRANULE_MIB = 3, 4, 512


def non_torch_bytes(deployment: Deployment) -> int:
    """Estimate for one GPU; form and source at the head of this file."""
    own = 0 if not deployment.device.shares_host_memory else int(HOST_GIB * GIB)
    return own + _beside_torch(deployment)


def _beside_torch(deployment: Deployment) -> int:
    version, tp = deployment.version, deployment.tp
    if not _on_nvlink4(deployment):
        pcie = on_pcie(deployment.device)
        joined = version.non_torch_pcie_gib if pcie else version.non_torch_several_gib
        gib = version.non_torch_gib if tp == 1 else joined
        return int(gib * GIB)
    charged = [tp] if tp > 1 else []
    if not version.finds_nccl:
        stages = deployment.options.pipeline_parallel_size
        charged += [gpus for gpus in (tp, stages) if gpus > 1]
    if not charged:
        return int(version.non_torch_gib * GIB)
    gib, mib = KERNELS_GIB, _workspace_mib(deployment)
    gib += sum(COMMUNICATOR_GIB + (gpus - 2) * FURTHER_GPU_GIB for gpus in charged)
    if not version.finds_nccl:
        gib += FIRST_GIB
        mib += sum(_connected_mib(gpus) for gpus in charged)
        mib += CUSTOM_ALL_REDUCE_MIB if tp > 1 else 0
    return int(gib * GIB + mib * MIB)


def on_pcie(device: Device) -> bool:
    """Whether a device's GPUs reach each other without NVLink, or by a bridge between two. NCCL's
    buffers lie in the host's memory then.
    """
    return device.runs_cuda and 0 < device.peer_bytes_per_s < NVLINK_BYTES_PER_S


def _on_nvlink4(deployment: Deployment) -> bool:
    device = deployment.device
    return device.runs_cuda and device.peer_bytes_per_s >= NVLINK4_BYTES_PER_S


def _connected_mib(gpus: int) -> int:
    """Additional MiB of a communicator with all its algorithms connected."""
    return CHANNELS * (SEND_MIB + RECEIVE_MIB) + SHARP_MIB * gpus if gpus > 2 else 0


def _workspace_mib(deployment: Deployment) -> float:
    """FlashInfer's workspace for an all-reduce fused with the following norm."""
    tp, options, device = deployment.tp, deployment.options, deployment.device
    kind = deployment.version.fused_all_reduce
    sizes = FUSED_MIB if device.peer_bytes_per_s < NVLINK5_BYTES_PER_S else FUSED_NVLINK5_MIB
    if kind == "none" or deployment.enforce_eager or tp not in sizes:
        return 0
    if kind == "exact":
        return FUSED_TENSORS * tp * sizes[tp]
    alone = options.pipeline_parallel_size == options.data_parallel_size == 1
    return FUSED_BUFFERS * GRANULE_MIB if alone else 0
