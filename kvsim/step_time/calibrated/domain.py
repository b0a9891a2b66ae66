"""Where a fit was measured, kind of step by kind of step: outside it, times are extrapolated."""

from collections.abc import Iterable
from typing import Self

from pydantic import model_validator

from kvsim.plumbing.options import Options
from kvsim.plumbing.units import ceil_div
from kvsim.step import StepShape
from kvsim.step_time.calibrated.samples import Kind, kind_of


def features(shape: StepShape) -> dict[str, int]:
    """The numbers of a step that its time is made of, the longest context aside."""
    return {
        "tokens": shape.num_decode + shape.prefill_tokens,
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
                raise ValueError(f"{kind} has a range whose end lies before its start")
        return self

    @classmethod
    def of(cls, shapes: Iterable[StepShape]) -> "Domain":
        """The box of these shapes."""
        ranges: dict[Kind, dict[str, tuple[int, int]]] = {}
        for shape in shapes:
            box = ranges.setdefault(kind_of(shape), {})
            for name, value in features(shape).items():
                low, high = box.get(name, (value, value))
                box[name] = (min(low, value), max(high, value))
        return cls(ranges=ranges)

    def outside(self, shape: StepShape) -> bool:
        """Whether a step with at least one token lies beyond what was measured."""
        box = self.ranges.get(kind_of(shape))
        if box is None:
            return True
        return any(
            not box[name][0] <= value <= box[name][1] for name, value in features(shape).items()
        )

    def steps_alike(self, num_decode: int, context_tokens: int) -> int | None:
        """For how many steps a decode batch stays inside, or outside: its context grows by
        num_decode a step, the first at context_tokens. None: for ever.
        """
        box = self.ranges.get("decode")
        if box is None:
            return None
        low, high = box["decode_context_tokens"]
        if context_tokens < low:
            return ceil_div(low - context_tokens, num_decode)
        return (high - context_tokens) // num_decode + 1 if context_tokens <= high else None
