"""The forms of a correction: which numbers are free, and the units of the numbers."""

from typing import NamedTuple

from kvsim.plumbing.units import PS_PER_US
from kvsim.step_time.correction import WHOLE_PPM, Correction
from kvsim.step_time.kernels.spread import Numbers

FORMS: dict[str, tuple[str, ...]] = {
    "constant": ("constant_ps",),
    "scale": ("scale_ppm",),
    "constant+token": ("constant_ps", "token_ps"),
    "constant+chunk": ("constant_ps", "chunk_ps"),
}
# What a server has beyond its kernels. Drawn towards servers of its kind, so never chosen by score.
SERVER = "server"
SERVER_FREE = (
    "scale_ppm", "constant_ps", "sequence_ps", "prompts_ps", "prompt_launch_ps", "prompt_token_ps",
)  # fmt: skip


def free_numbers(form: str) -> tuple[str, ...]:
    """The free numbers of a form, by their fields in Correction."""
    return SERVER_FREE if form == SERVER else FORMS[form]


class Proportions(NamedTuple):
    """Means over the steps of a run, from which the unit of each number is derived.

    step_ps: duration of a step. tokens, chunks, sequences, prompt_tokens: number of computed
    tokens, prefill chunks, sequences and prompt tokens of a step. prompts: share of the steps with
    prompts.
    """

    step_ps: float
    tokens: float
    chunks: float
    sequences: float
    prompts: float
    prompt_tokens: float

    def unit(self, name: str) -> float:
        """Value of a field of Correction that doubles the mean step; 0 if no step of the run has
        what the field counts.
        """
        if name == "scale_ppm":
            return WHOLE_PPM
        each = {
            "constant_ps": 1.0,
            "token_ps": self.tokens,
            "chunk_ps": self.chunks,
            "sequence_ps": self.sequences,
            "prompts_ps": self.prompts,
            "prompt_launch_ps": self.prompts,
            "prompt_token_ps": self.prompt_tokens,
        }[name]
        return self.step_ps / each if each else 0.0

    def correction(self, form: str, numbers: "tuple[float, ...]") -> Correction:
        """The correction for numbers given as fractions of the mean step time: 0.1 adds 10 % to the
        mean step.
        """
        values = {
            name: round(number * self.unit(name))
            for name, number in zip(free_numbers(form), numbers, strict=True)
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

    def of_server(self, numbers: Numbers) -> tuple[float, ...]:
        """Convert numbers of a server (us) to fractions of the mean step time."""
        scale, *us = numbers
        units = [self.unit(name) for name in SERVER_FREE[1:]]
        shares = [each * PS_PER_US / unit if unit else 0.0
                  for each, unit in zip(us, units, strict=True)]  # fmt: skip
        return (scale, *shares)
