"""Autoscalers of a fleet: one module each, registered here by one line each."""

from kvsim.fleet.scaling.options import AutoscalerOptions
from kvsim.plumbing.registry import Registry

AUTOSCALERS: Registry[AutoscalerOptions] = Registry(
    "autoscaler",
    {
        "queue": "kvsim.fleet.scaling.queue:QueueLength",
        "requests": "kvsim.fleet.scaling.requests:OngoingRequests",
        "kv-use": "kvsim.fleet.scaling.kv_use:KvUse",
        "hpa": "kvsim.fleet.scaling.hpa:SeveralTargets",
        "rate": "kvsim.fleet.scaling.rate:ArrivalRate",
    },
)
