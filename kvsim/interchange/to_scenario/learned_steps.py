"""Fit corrections to the steps in a server's own log: the time of each step beyond its kernels.

A step takes scale * (kernels + host time) + a constant + a time per sequence. A step with prefill
has another scale, and adds a constant and a time per prompt token. Thousands of steps determine
most of these numbers well. If every step has the same number of sequences, the time per sequence
cannot be separated from the constant. So each number is drawn towards 0, weighted by its usual
spread over such servers (`learned`). Where the log determines a number, this changes nothing. The
time that a client measured beyond the engine is the front end's.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.step_time.calibrated.samples import Sample
from kvsim.step_time.kernels.composed import KernelSteps
from kvsim.step_time.kernels.spread import PROMPTS_US, TOKEN_SHARE, spread_of

FEWEST = 30  # steps to learn from
NOISE = 0.05  # of one step's time, at first; then what the fit leaves
LEAST_NOISE = 0.005
PROMPT_SCALE = 0.3  # standard deviation of the factor on steps with prompts
TYPICAL = 1.4826  # a standard deviation, of the median size of normal errors
ROUNDS = 5  # in which steps that are far off come to count less
LEAST, LEAST_FACTOR = 0.6, 0.05  # of what a step with prompts has of its kernels
FAR = 3.0  # times the noise
PS_PER_US = 1_000_000
Floats = NDArray[np.float64]


class StepNumbers(NamedTuple):
    """Fitted entries for the table [step_time].

    before and after are medians of the absolute relative error of the steps, without and with the
    fit. words says which steps were used.
    """

    numbers: dict[str, float]
    before: float
    after: float
    words: str


def learned_steps(form: KernelSteps, samples: Sequence[Sample]) -> StepNumbers | None:
    """Fit the corrections of `form` to measured steps; None for fewer than FEWEST steps."""
    if len(samples) < FEWEST:
        return None
    took_us = np.array([1e6 * each.seconds for each in samples])
    plain_us = np.array([form.step_ps(each.shape) / PS_PER_US for each in samples])
    columns = _columns(samples, plain_us)
    prompts = columns[:, 4] > 0
    usual = spread_of(form).usual
    sigmas = np.array([
        usual.scale, usual.overhead_us, usual.sequence_us, PROMPT_SCALE, PROMPTS_US,
        _token_us(columns[prompts, 5], plain_us[prompts]),
    ])  # fmt: skip
    sigmas *= _likely(columns, sigmas, took_us - plain_us, plain_us)
    least = np.array([-0.9, -0.9 * float(np.min(plain_us)), -np.inf, -LEAST, -np.inf, -np.inf])
    drawn = _drawn(columns, took_us - plain_us, took_us, sigmas, least)
    found_us = plain_us + columns @ drawn
    return StepNumbers(
        _options(drawn.tolist()), _off(plain_us, took_us), _off(found_us, took_us), _range(samples)
    )


def _options(drawn: Sequence[float]) -> dict[str, float]:
    """The fitted numbers as options of [step_time]; prompt_scale multiplies the whole time of a
    step with prefill.
    """
    more, step_us, sequence_us, prompts, prompts_us, token_us = drawn
    scale = 1 + more
    factor = max(LEAST_FACTOR, (scale + prompts) / scale)
    return {
        "scale": round(scale, 6),
        "overhead_us": round(step_us, 2),
        "sequence_us": round(sequence_us, 3),
        "prompt_scale": round(factor, 6),
        "prompts_us": round((step_us + prompts_us) / factor - step_us, 2),
        "prompt_token_us": round(token_us / factor, 4),
    }


def _columns(samples: Sequence[Sample], plain_us: Floats) -> Floats:
    """Design matrix [steps, numbers]: what each number is multiplied with in each step."""
    shapes = [each.shape for each in samples]
    sequences = np.array([float(shape.num_decode + len(shape.chunks)) for shape in shapes])
    prompts = np.array([float(bool(shape.chunks)) for shape in shapes])
    tokens = np.array([float(shape.prefill_tokens) for shape in shapes])
    ones = np.ones(len(shapes))
    return np.column_stack([plain_us, ones, sequences, prompts * plain_us, prompts, tokens])


def _token_us(tokens: Floats, plain_us: Floats) -> float:
    """Usual error of the time per prompt token, in us: TOKEN_SHARE of the kernels' time
    per token.
    """
    return TOKEN_SHARE * float(np.median(plain_us / tokens)) if len(tokens) else 1.0


def _likely(columns: Floats, sigmas: Floats, apart: Floats, plain_us: Floats) -> float:
    """Factor (at least 1) by which the usual spread is widened for a server that is far from the
    usual values.
    """
    usual = np.sqrt(((columns * sigmas) ** 2).sum(axis=1)) + NOISE * plain_us
    return max(1.0, float(np.median(np.abs(apart) / usual)) * 1.5)


def _drawn(
    columns: Floats, apart: Floats, took_us: Floats, sigmas: Floats, least: Floats
) -> Floats:
    """The most likely numbers, with the noise estimated from the residuals.

    Steps with and without prefill have separate noise. Outliers, such as a pause or a compilation,
    get less weight.
    """
    prompts = columns[:, 4] > 0
    noise, weights = NOISE * took_us, np.ones(len(apart))
    found = np.zeros(columns.shape[1])
    for _ in range(ROUNDS):
        found = _most_likely(columns, apart, noise / weights**0.5, sigmas, least)
        off = np.abs(apart - columns @ found)
        for kind in (prompts, ~prompts):
            if kind.any():
                usual = TYPICAL * float(np.median(off[kind] / took_us[kind]))
                noise[kind] = max(LEAST_NOISE, usual) * took_us[kind]
        weights = np.minimum(1.0, FAR * noise / np.maximum(off, 1e-9))
    return found


def _most_likely(
    columns: Floats, apart: Floats, noise: Floats, sigmas: Floats, least: Floats
) -> Floats:
    """Least squares with a penalty towards 0, and with a lower bound for each number."""
    left, right = columns * sigmas / noise[:, None], apart / noise
    free = np.ones(columns.shape[1], dtype=bool)
    drawn = np.zeros(columns.shape[1])
    while free.any():
        rest = right - left[:, ~free] @ drawn[~free]
        normal = left[:, free].T @ left[:, free] + np.eye(int(free.sum()))
        drawn[free] = np.linalg.solve(normal, left[:, free].T @ rest)
        below = free & (drawn * sigmas < least)
        if not below.any():
            break
        drawn[below] = (least / sigmas)[below]
        free &= ~below
    return drawn * sigmas


def _off(simulated: Floats, took: Floats) -> float:
    return float(np.median(np.abs(simulated / took - 1)))


def _range(samples: Sequence[Sample]) -> str:
    """The number and sizes of the steps that were used, as text."""
    sequences = [each.shape.num_decode + len(each.shape.chunks) for each in samples]
    tokens = max(each.shape.prefill_tokens for each in samples)
    least, most = min(sequences), max(sequences)
    words = f"{len(samples):,} steps of its log: {least:,} to {most:,} sequences"
    return f"{words}, up to {tokens:,} prompt tokens a step" if tokens else f"{words}, no prompts"
