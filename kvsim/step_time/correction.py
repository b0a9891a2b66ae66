"""Corrections of a step-time form: host time and communication that it does not model."""

from typing import NamedTuple

WHOLE_PPM = 1_000_000


class Correction(NamedTuple):
    """A step of T tokens with C prefill chunks lasts scale * t + constant + token * T + chunk * C.

    t: the time of the step-time form. constant_ps: host time; may be negative. token_ps: for every
    token of the step, such as an all-reduce under tensor parallelism. chunk_ps: for every prefill
    chunk. scale_ppm: the scale in millionths; 1,000,000 changes nothing. It multiplies each
    coefficient of the form and rounds it, so that runs of steps still sum in closed form.
    sequence_ps: for every sequence of the step. prompts_ps: for a step that computes prompts;
    prompt_token_ps: for each of its prompt tokens. prompt_launch_ps: added to the launch time of
    such a step, the least time that its kernels take.
    """

    constant_ps: int = 0
    token_ps: int = 0
    chunk_ps: int = 0
    scale_ppm: int = WHOLE_PPM
    sequence_ps: int = 0
    prompts_ps: int = 0
    prompt_token_ps: int = 0
    prompt_launch_ps: int = 0

    def scaled(self, ps: int) -> int:
        """A coefficient in ps, scaled and rounded."""
        return (ps * self.scale_ppm + WHOLE_PPM // 2) // WHOLE_PPM


NONE = Correction()
