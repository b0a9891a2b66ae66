"""Controls of the page, in page order: one module each, registered here by one line each."""

from kvsim.explore.controls.control import Control
from kvsim.plumbing.registry import Registry

CONTROLS: Registry[Control] = Registry(
    "control",
    {
        "rate": "kvsim.explore.controls.rate:Rate",
        "allocators": "kvsim.explore.controls.allocators:Allocators",
        "pool": "kvsim.explore.controls.pool:PoolControl",
        "model": "kvsim.explore.controls.model:ModelControl",
        "device": "kvsim.explore.controls.device:DeviceControl",
        "workload": "kvsim.explore.controls.workload:WorkloadControl",
        "scheduler": "kvsim.explore.controls.scheduler:SchedulerControl",
        "seed": "kvsim.explore.controls.seed:Seed",
    },
)
