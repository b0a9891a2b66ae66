"""The forms of a correction: which numbers are free, and the units of the numbers."""

from typing import NamedTuple

from kvsim.step_time.correction import WHOLE_PPM, Correction

FORMS: dict[str, tuple[str, ...]] = {
    "constant": ("constant_ps",),
    "scale": ("scale_ppm",),
    "constant+token": ("constant_ps", "token_ps"),
    "constant+chunk": ("constant_ps", "chunk_ps"),
}


class Proportions(NamedTuple):
    """Means over the run's steps, which are the units of the numbers: step time (ps), tokens and
    prefill chunks per step.
    """

    step_ps: float
    tokens: float
    chunks: float

    def correction(self, form: str, numbers: "tuple[float, ...]") -> Correction:
        """The correction for numbers given as fractions of the mean step time: 0.1 adds 10 % to the
        mean step.
        """
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
        """The lower bound of each number: no step may have a negative duration, and times per token
        or chunk are at least 0.
        """
        least = {
            "constant_ps": -0.9 * shortest_ps / self.step_ps,
            "scale_ppm": -0.9,
            "token_ps": 0.0,
            "chunk_ps": 0.0,
        }
        return tuple(least[name] for name in FORMS[form])
