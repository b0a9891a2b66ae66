"""Workloads: one module a kind, registered here by one line each."""

from kvsim.plumbing.registry import Registry
from kvsim.workload.options import WorkloadOptions

WORKLOADS: Registry[WorkloadOptions] = Registry(
    "workload",
    {
        "synthetic": "kvsim.workload.synthetic:Synthetic",
        "sessions": "kvsim.workload.sessions:Sessions",
        "trace": "kvsim.workload.trace:TraceReplay",
        "uncached": "kvsim.workload.uncached:Uncached",
        "beams": "kvsim.workload.beams:Beams",
    },
)
GENERATED = ("synthetic", "sessions")  # kinds that describe a load
