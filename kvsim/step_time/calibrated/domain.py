"""The measured domain of a fit, for each kind of step: outside it, times are extrapolated.

Counts below the smallest measured one are inside: the terms of attention are proportional to them.
Larger sizes are outside, once they are more than a tenth beyond the largest. So is a step with
fewer tokens than any that was measured, since g is not proportional to them.
"""

from collections.abc import Iterable
from typing import Self

from pydantic import model_validator

from kvsim.plumbing.options import Options
from kvsim.step import StepShape
from kvsim.step_time.calibrated.samples import Kind, kind_of

_BEYOND = 10  # a tenth


def features(shape: StepShape) -> dict[str, int]:
    """The counts of a step that its time is a function of, without the longest context."""
    return {
        "tokens": shape.num_tokens,
        "prefill_tokens": shape.prefill_tokens,
        "prefill_context_tokens": shape.prefill_context_tokens,
        "decode_seqs": shape.num_decode,
        "decode_context_tokens": shape.context_tokens,
    }


class Domain(Options):
    """Least and greatest value of each feature, by kind; a kind without samples is all outside."""

    ranges: dict[Kind, dict[str, tuple[int, int]]]

    @model_validator(mode="after")
    def _every_feature_has_a_range(self) -> Self:
        names = set(features(StepShape((), 1, 1)))
        for kind, box in self.ranges.items():
            if box.keys() != names:
                apart = ", ".join(sorted(names ^ box.keys()))
                raise ValueError(f"{kind} needs the range of each feature and no other: {apart}")
            if any(low > high for low, high in box.values()):
                raise ValueError(f"{kind} has a range that ends before its start")
        return self

    @classmethod
    def of(cls, shapes: Iterable[StepShape]) -> "Domain":
        """The domain of these step shapes: least and greatest value of each feature, by kind."""
        ranges: dict[Kind, dict[str, tuple[int, int]]] = {}
        for shape in shapes:
            box = ranges.setdefault(kind_of(shape), {})
            for name, value in features(shape).items():
                low, high = box.get(name, (value, value))
                box[name] = (min(low, value), max(high, value))
        return cls(ranges=ranges)

    def outside(self, shape: StepShape) -> bool:
        """Whether a step with at least one token is outside the measured domain."""
        box = self.ranges.get(kind_of(shape))
        if box is None:
            return True
        values = features(shape)
        if values["tokens"] < min(each["tokens"][0] for each in self.ranges.values()):
            return True
        return any(value > _reach(box[name]) for name, value in values.items())

    def steps_in_domain(self, num_decode: int, context_tokens: int) -> int | None:
        """Number of steps for which a decode batch stays inside, or outside: its context grows by
        num_decode a step, the first at context_tokens.

        None: without end.
        """
        box = self.ranges.get("decode")
        if box is None:
            return None
        reach = _reach(box["decode_context_tokens"])
        return (reach - context_tokens) // num_decode + 1 if context_tokens <= reach else None


def _reach(span: tuple[int, int]) -> int:
    """The largest value that still counts as measured."""
    return span[1] + span[1] // _BEYOND
