"""Who runs when: one file a scheduler, and its line here."""

from kvsim.engine.scheduler import SchedulerOptions
from kvsim.registry import Registry

SCHEDULERS: Registry[SchedulerOptions] = Registry(
    "scheduler",
    {
        "continuous": "kvsim.engine.continuous:Continuous",
    },
)
