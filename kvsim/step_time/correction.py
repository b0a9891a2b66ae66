"""Corrections of a step-time form: host time and communication that it does not model."""

from typing import NamedTuple

WHOLE_PPM = 1_000_000


class Correction(NamedTuple):
    """A step of T tokens with C prefill chunks lasts scale * t + constant + token * T + chunk * C.

    t: what the form says. constant_ps: host time; may be negative. token_ps: of every token the
    step computes, as an all-reduce under tensor parallelism is. chunk_ps: of every prefill chunk.
    scale_ppm: the scale in millionths; 1,000,000 changes nothing. It multiplies each coefficient of
        the form, which stays
    integer, so that runs of steps still sum in closed form. sequence_ps: of every sequence of the
    step. prompts_ps: of a step that computes prompts; prompt_token_ps: of each of their tokens.
    prompt_launch_ps: more for the least time that the kernels of such a step take.
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
