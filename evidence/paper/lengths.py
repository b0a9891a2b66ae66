"""Prompt and output lengths of the paper's two data sets, without the data.

ShareGPT's come from the quantile grids that ship with the project. They are paired so that prompt +
output is below the model's 2,048 tokens while both grids are unchanged. Redrawing too long pairs
would lose the long prompts, 5 % of their mean. Of Alpaca's only the means are published; their
shape is assumed.

Samples are stratified: one value out of each of `count` equal slices of a distribution, in random
order. The distribution stays as it is, and the load of a short run no longer hangs on whether a few
very long requests were drawn.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.workload.grids import named
from kvsim.workload.traces.reader import read_trace

Floats = NDArray[np.float64]
Lengths = NDArray[np.int64]
Quantile = Callable[[Floats], Floats]
Sampler = Callable[[int, np.random.Generator], tuple[Lengths, Lengths]]

LONGEST = 2047  # prompt + output of the artifact's requests stay below 2,048
COPULA = 0.14  # of the normals that pair the grids: the lengths then correlate by the data's 0.04
MOST_TOKENS = 2028  # the grids end here; leaves room for a short prompt or output
ALPACA_PROMPT, ALPACA_OUTPUT = 19.31, 58.45  # means, tokens: the paper's figure 11
SLICES = 32
MOST_ROUNDS = 1000


def sharegpt(count: int, rng: np.random.Generator) -> tuple[Lengths, Lengths]:
    """(prompts, outputs) from the shipped grids."""
    prompt, output = grid("sharegpt-opt.prompt_tokens"), grid("sharegpt-opt.output_tokens")
    return paired(prompt, output, COPULA, count, rng)


def recorded(path: Path) -> Sampler:
    """A sampler of the recorded pairs in a file; pairs longer than LONGEST are left out. It is
    stratified by output in SLICES slices, and by prompt within each.

    InputError for a file without usable rows.
    """
    rows = [(row.prompt_tokens, row.output_tokens) for row in read_trace(path).rows]
    pairs = np.array([row for row in rows if sum(row) <= LONGEST], dtype=np.int64).reshape(-1, 2)
    if not len(pairs):
        raise InputError("no request is short enough", where=str(path), limit=LONGEST)
    pairs = pairs[np.argsort(pairs[:, 1], kind="stable")]
    slices = np.array_split(pairs, min(SLICES, len(pairs)))
    pairs = np.concatenate([each[np.argsort(each[:, 0], kind="stable")] for each in slices])

    def draw(count: int, rng: np.random.Generator) -> tuple[Lengths, Lengths]:
        taken = pairs[(strata(count, rng) * len(pairs)).astype(np.int64)]
        taken = rng.permutation(taken)
        return taken[:, 0], taken[:, 1]

    return draw


def alpaca(shape: str) -> Sampler:
    """A sampler with Alpaca's mean lengths under an assumed shape (a name in ALPACA_SHAPES);
    prompts and outputs are independent.
    """
    quantiles = ALPACA_SHAPES[shape]
    prompt, output = quantiles(ALPACA_PROMPT, 0), quantiles(ALPACA_OUTPUT, 1)

    def draw(count: int, rng: np.random.Generator) -> tuple[Lengths, Lengths]:
        return paired(prompt, output, 0.0, count, rng)

    return draw


# --- shapes -----------------------------------------------------------------------------------


def grid(name: str) -> Quantile:
    """The quantile function of a shipped grid, interpolated linearly."""
    points, values = named(name, "lengths")
    return lambda share: np.interp(share, points, values)


def exponential(mean: float, column: int) -> Quantile:
    """Quantile function of the exponential distribution, the weakest assumption for a positive
    length with this mean.
    """
    return lambda share: -mean * np.log1p(-share)


def lognormal(mean: float, column: int) -> Quantile:
    """Quantile function of the log-normal distribution with sigma 1."""
    from scipy.special import ndtri

    return lambda share: mean * np.exp(ndtri(share) - 0.5)


def like_sharegpt(mean: float, column: int) -> Quantile:
    """ShareGPT's quantile function of prompts (column 0) or outputs (column 1), scaled to this
    mean.
    """
    quantile = grid(f"sharegpt-opt.{('prompt', 'output')[column]}_tokens")
    own_mean = float(quantile((np.arange(1 << 16) + 0.5) / (1 << 16)).mean())
    return lambda share: quantile(share) * (mean / own_mean)


ALPACA_SHAPES: dict[str, Callable[[float, int], Quantile]] = {
    "exponential": exponential,
    "lognormal": lognormal,
    "like ShareGPT": like_sharegpt,
}
ALPACA_ASSUMED = "lognormal"


# --- samples ----------------------------------------------------------------------------------


def strata(count: int, rng: np.random.Generator) -> Floats:
    """(count,) ascending numbers, one uniform number in each of `count` slices of [0, 1)."""
    return (np.arange(count) + rng.random(count)) / count


def paired(
    prompt: Quantile, output: Quantile, copula: float, count: int, rng: np.random.Generator
) -> tuple[Lengths, Lengths]:
    """(prompts, outputs) that keep both distributions; no pair is longer than LONGEST.

    copula: correlation of the normal variables by which the two are ranked and paired. Outputs of
    pairs that are too long are then swapped with random others, until none is too long.
    """
    prompts, outputs = whole(prompt(strata(count, rng))), whole(output(strata(count, rng)))
    first, other = rng.standard_normal(count), rng.standard_normal(count)
    second = copula * first + np.sqrt(1 - copula**2) * other
    prompts, outputs = ranked(prompts, first), ranked(outputs, second)
    for _ in range(MOST_ROUNDS):
        long = np.flatnonzero(prompts + outputs > LONGEST)
        if not len(long):
            return prompts, outputs
        for place in long.tolist():
            with_place = int(rng.integers(count))
            outputs[place], outputs[with_place] = outputs[with_place], outputs[place]
    raise InvariantError(f"lengths do not pair below {LONGEST} tokens")


def ranked(values: Lengths, by: Floats) -> Lengths:
    """The ascending `values`, rearranged to have the same ranks as `by`."""
    placed = np.empty_like(values)
    placed[np.argsort(by, kind="stable")] = values
    return placed


def whole(values: Floats) -> Lengths:
    """Lengths rounded to whole tokens, at most MOST_TOKENS."""
    return np.clip(np.rint(values), 1, MOST_TOKENS).astype(np.int64)
