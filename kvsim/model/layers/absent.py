"""A part that a layer does not have: no mixer, or no feed-forward part."""

from dataclasses import dataclass

from kvsim.model.weights import Weights


@dataclass(frozen=True, slots=True)
class Absent:
    """An absent part, without weights, work or cache (Nemotron-H's layers have one part each)."""

    def weights(self, hidden: int, tp: int) -> Weights:
        """The weights of an absent part: none."""
        return Weights()

    def active(self, hidden: int) -> int:
        """Matrix elements of an absent part: 0."""
        return 0

    def peak_width(self) -> int:
        """Intermediate elements of an absent part: 0."""
        return 0
