"""A part that a layer does not have: no mixer, or no feed-forward part."""

from dataclasses import dataclass

from kvsim.model.weights import Weights


@dataclass(frozen=True, slots=True)
class Absent:
    """An absent part, without weights, work or cache (Nemotron-H's layers have one part each)."""

    def weights(self, hidden: int, tp: int) -> Weights:
        """No weights."""
        return Weights()

    def active(self, hidden: int) -> int:
        """No matrix elements."""
        return 0

    def peak_width(self) -> int:
        """No intermediate elements."""
        return 0
