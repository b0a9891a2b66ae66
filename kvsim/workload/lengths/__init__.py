"""Distributions of lengths and other counts: one module each, registered here by one line each."""

from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.registry import Registry
from kvsim.workload.lengths.distribution import LengthOptions

__all__ = ["LENGTHS", "LengthOptions", "OneOrMore"]

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
        "none": "kvsim.workload.lengths.none:NoOutput",
    },
)


class OneOrMore(OneOf):
    """A scenario field for a distribution that must not give zero, such as prompt lengths."""

    def __init__(self, where: str) -> None:
        super().__init__(LENGTHS, where)

    def read(self, value: object) -> object:
        """The distribution in a scenario's table; InputError for one that gives zeros."""
        lengths = super().read(value)
        assert isinstance(lengths, LengthOptions)
        if lengths.least < 1:
            raise InputError(
                "only outputs can be without tokens",
                where=self.where,
                value=LENGTHS.name_of(lengths),
                remedy="give a distribution of lengths",
            )
        return lengths
