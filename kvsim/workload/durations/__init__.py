"""Distributions of durations (gaps, think times): one module each, registered here by one line
each.
"""

from kvsim.plumbing.registry import Registry
from kvsim.workload.durations.distribution import DurationOptions

__all__ = ["DURATIONS", "DurationOptions"]

DURATIONS: Registry[DurationOptions] = Registry(
    "duration distribution",
    {
        "fixed": "kvsim.workload.durations.fixed:FixedDuration",
        "exponential": "kvsim.workload.durations.exponential:ExponentialDuration",
        "lognormal": "kvsim.workload.durations.lognormal:LognormalDuration",
        "grid": "kvsim.workload.durations.grid:GridDuration",
    },
)
