"""Fit a few correction numbers that bring step times composed of kernels closer to measurements."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.toml import value_text
from kvsim.plumbing.units import PS_PER_S, PS_PER_US
from kvsim.step_time.calibrated.fitted import Errors
from kvsim.step_time.calibrated.samples import Kind, Sample, kind_of
from kvsim.step_time.correction import NONE, Correction
from kvsim.step_time.form import StepTime
from kvsim.step_time.kernels.options import ComposedOptions
from kvsim.step_time.options import Hardware

FEWEST = 10  # samples to fit on
ByKind = dict[Kind, Errors]


class CorrectedSteps(NamedTuple):
    """Options with fitted correction numbers, and the errors on held-out samples.

    options contain the fitted numbers. fitted counts the samples used for the fit. before and
    held_out are errors on the other samples, without and with the correction.
    """

    options: ComposedOptions
    fitted: int
    before: ByKind
    held_out: ByKind


def corrected_steps(
    options: ComposedOptions, hardware: Hardware, samples: Sequence[Sample], share: float
) -> CorrectedSteps:
    """Fit correction numbers on the first `share` of the samples by least squares of relative
    errors.

    The numbers are a factor on all steps, a further factor on steps with prefill, and a constant
    per step. Without samples with prefill such steps keep their time.
    """
    count = round(share * len(samples))
    if count < FEWEST or count == len(samples):
        raise InputError(
            "too few samples to fit on, or none to hold out",
            where="--share",
            value=f"{count} of {len(samples)} samples",
            limit=f"at least {FEWEST} to fit on, and one to hold out",
        )
    first, rest = samples[:count], samples[count:]
    plain = options.build(hardware)
    numbers = _fitted(plain, first)
    fitted = options.model_copy(update=numbers)
    return CorrectedSteps(
        fitted, count, _errors(plain, rest), _errors(fitted.build(hardware), rest)
    )


def _fitted(form: StepTime, samples: Sequence[Sample]) -> dict[str, float]:
    """The fitted scale, prompt_scale and overhead_us: seconds = f * (overhead + scale * t).

    f is 1 for a decode step and prompt_scale for a step with prefill; t is the uncorrected step
    time.
    """
    from scipy.optimize import least_squares

    seconds = np.array([each.seconds for each in samples])
    times = np.array([form.step_ps(each.shape) / PS_PER_S for each in samples])
    prompts = np.array([bool(each.shape.chunks) for each in samples])
    weights = np.where(prompts, 1 / max(1, prompts.sum()), 1 / max(1, (~prompts).sum())) ** 0.5
    both = prompts.any() and not prompts.all()
    typical = float(np.median(seconds))

    def off(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        scale, factor, overhead = np.exp(numbers[0]), np.exp(numbers[1]), numbers[2] * typical
        found = (scale * times + overhead) * np.where(prompts, factor if both else 1.0, 1.0)
        return np.asarray(weights * (found / seconds - 1))

    begin = [float(np.log(np.median(seconds / times))), 0.0, 0.0]
    best = least_squares(off, begin, bounds=([-5, -5, 0], [5, 5, 1])).x
    scale = round(float(np.exp(best[0])), 6)
    overhead_us = round(float(best[2]) * typical * PS_PER_S / PS_PER_US, 3)
    found = {"scale": scale, "overhead_us": overhead_us}
    if both:
        return found | {"prompt_scale": round(float(np.exp(best[1])), 6)}
    if prompts.any():
        return found
    # f * (overhead + prompts + scale * t) = t: what few sizes of decode steps leave open between
    # scale and overhead says nothing of prompts
    return found | {"prompt_scale": round(1 / scale, 6), "prompts_us": -overhead_us}


def _errors(form: StepTime, samples: Sequence[Sample]) -> ByKind:
    errors = [form.step_ps(each.shape) / (each.seconds * PS_PER_S) - 1.0 for each in samples]
    return Errors.by_kind(errors, [kind_of(each.shape) for each in samples])


def numbers_of(correction: Correction) -> dict[str, float]:
    """A correction as option values of a composed step time: a factor, and microseconds."""
    return {
        "scale": correction.scale_ppm / 1e6,
        "overhead_us": correction.constant_ps / PS_PER_US,
        "token_us": correction.token_ps / PS_PER_US,
        "chunk_us": correction.chunk_ps / PS_PER_US,
        "sequence_us": correction.sequence_ps / PS_PER_US,
        "prompts_us": correction.prompts_ps / PS_PER_US,
        "prompt_token_us": correction.prompt_token_ps / PS_PER_US,
        "prompt_launch_us": correction.prompt_launch_ps / PS_PER_US,
    }


def table_text(kind: str, options: Mapping[str, object], note: str) -> str:
    """A [step_time] table for a scenario file, without options that are None or change nothing.
    note becomes a comment above it.
    """
    neutral: dict[str, object] = {**dict.fromkeys(numbers_of(NONE), 0.0), "tuned": False}
    neutral |= {"scale": 1.0, "prompt_scale": 1.0}
    lines = [f"# {note}", "[step_time]", f'kind = "{kind}"']
    for name, value in options.items():
        if value is None or value == neutral.get(name):
            continue
        text = f"{value:g}" if isinstance(value, float) else value_text(value)
        lines.append(f"{name} = {text}")
    return "\n".join(lines) + "\n"
