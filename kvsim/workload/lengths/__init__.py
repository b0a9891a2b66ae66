"""Lengths and other counts: one file a distribution, and its line here."""

from kvsim.plumbing.registry import Registry
from kvsim.workload.lengths.distribution import LengthOptions

__all__ = ["LENGTHS", "LengthOptions"]

LENGTHS: Registry[LengthOptions] = Registry(
    "length distribution",
    {
        "fixed": "kvsim.workload.lengths.fixed:FixedLength",
        "uniform": "kvsim.workload.lengths.uniform:UniformLength",
        "geometric": "kvsim.workload.lengths.geometric:GeometricLength",
        "lognormal": "kvsim.workload.lengths.lognormal:LognormalLength",
        "grid": "kvsim.workload.lengths.grid:GridLength",
        "continuation": "kvsim.workload.lengths.continuation:Continuation",
        "empirical": "kvsim.workload.lengths.empirical:EmpiricalLength",
    },
)
