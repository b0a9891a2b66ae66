"""The forms of a correction: which of its numbers are free, in the run's own proportions."""

from typing import NamedTuple

from kvsim.step_time.correction import WHOLE_PPM, Correction

FORMS: dict[str, tuple[str, ...]] = {
    "constant": ("constant_ps",),
    "scale": ("scale_ppm",),
    "constant+token": ("constant_ps", "token_ps"),
    "constant+chunk": ("constant_ps", "chunk_ps"),
}


class Proportions(NamedTuple):
    """Units of the numbers, so that all are of one size: the mean step (ps), and the tokens and
    chunks it has.
    """

    step_ps: float
    tokens: float
    chunks: float

    def correction(self, form: str, numbers: "tuple[float, ...]") -> Correction:
        """Each number is the share of the mean step's time that it adds or takes away."""
        units = {
            "constant_ps": self.step_ps,
            "token_ps": self.step_ps / self.tokens,
            "chunk_ps": self.step_ps / self.chunks,
            "scale_ppm": WHOLE_PPM,
        }
        values = {
            name: round(number * units[name])
            for name, number in zip(FORMS[form], numbers, strict=True)
        }
        if "scale_ppm" in values:
            values["scale_ppm"] += WHOLE_PPM
        return Correction(**values)

    def lowest(self, form: str, shortest_ps: int) -> tuple[float, ...]:
        """How far each number may go down: no step may end before it began, and communication
        and chunks take time.
        """
        least = {
            "constant_ps": -0.9 * shortest_ps / self.step_ps,
            "scale_ppm": -0.9,
            "token_ps": 0.0,
            "chunk_ps": 0.0,
        }
        return tuple(least[name] for name in FORMS[form])
