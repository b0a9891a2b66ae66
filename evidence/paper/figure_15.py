"""Figure 15: memory saved by sharing blocks between the sequences of one request.

Saving is 1 - physical / logical blocks. A request is in the batch for one iteration per token. So
the mean over iterations is the ratio of two sums over requests and their iterations, which needs
neither a simulation nor a time model.

Parallel sampling: the n samples share the full blocks of the prompt. The prompt's last block is
copied when the first sample writes into it. Beam search shares more, depending on how often beams
fork, which is not published. Here each beam continues from a random beam with probability FORKS per
step, and from itself otherwise. FORKS is fitted on width 2, so beam search is only reported.
"""

from collections.abc import Iterator
from math import comb
from statistics import fmean, stdev

import numpy as np

from evidence.paper.check import Check, within
from evidence.paper.experiment import BLOCK_TOKENS, Setting
from evidence.paper.lengths import (
    ALPACA_ASSUMED,
    ALPACA_SHAPES,
    Floats,
    Lengths,
    Sampler,
    alpaca,
)

SOURCE = "PagedAttention, figure 15"
PARALLEL = {2: 6.09, 4: 8.53, 6: 9.79}  # Alpaca
BEAM = {2: 37.56, 4: 53.13, 6: 55.16}
SHAREGPT_PARALLEL = (16.2, 30.5)  # over n = 2, 4, 6
FORKS = 0.07
TOLERANCE = 1.0
REQUESTS = 4000
DRAWS = 16  # of REQUESTS each, consecutive seeds
UNIT = "% of logical blocks"


def checks(setting: Setting) -> Iterator[Check]:
    """Checks of parallel sampling, with a tolerance; beam search is only reported."""
    for shape in ALPACA_SHAPES:
        drawn = draws(setting, alpaca(shape))
        for n, published in PARALLEL.items():
            mean, spread = shares(drawn, n)
            yield Check(
                SOURCE,
                f"parallel sampling, n = {n}, Alpaca ({shape})",
                published,
                mean,
                UNIT,
                TOLERANCE if shape == ALPACA_ASSUMED else None,
                spread,
                why="another shape for Alpaca's lengths, beside the one assumed",
                streams=DRAWS,
            )
    drawn = draws(setting, alpaca(ALPACA_ASSUMED))
    for n, published in BEAM.items():
        mean, spread = shares(drawn, n, FORKS)
        yield Check(
            SOURCE,
            f"beam search, width {n}, Alpaca ({ALPACA_ASSUMED})",
            published,
            mean,
            UNIT,
            None,
            spread,
            why=f"how often beams fork is not published; {FORKS:g} a step is fitted on width 2",
            streams=DRAWS,
        )
    drawn = draws(setting, setting.sharegpt)
    for n in PARALLEL:
        quantity = f"parallel sampling, n = {n}, ShareGPT"
        mean, spread = shares(drawn, n)
        check = within(SOURCE, quantity, SHAREGPT_PARALLEL, mean, UNIT)
        yield check._replace(spread=spread, streams=DRAWS)


def draws(setting: Setting, lengths: Sampler) -> list[tuple[Lengths, Lengths]]:
    """DRAWS random samples of REQUESTS (prompt lengths, output lengths)."""
    seeds = range(setting.seed, setting.seed + DRAWS)
    return [lengths(REQUESTS, np.random.Generator(np.random.PCG64(seed))) for seed in seeds]


def shares(drawn: list[tuple[Lengths, Lengths]], n: int, forks: float = 0.0) -> tuple[float, float]:
    """Percent of blocks saved with n sequences a request: mean and deviation over draws."""
    longest = max(int(outputs.max()) for _, outputs in drawn) if forks else 0
    distinct = ancestors(n, forks, longest)
    found = [100 * saved(prompts, outputs, n, distinct) for prompts, outputs in drawn]
    return fmean(found), stdev(found)


def ancestors(n: int, forks: float, steps: int) -> Floats:
    """(steps + 1,) mean number of distinct beams, k = 0..steps steps ago, from which today's n
    beams descend.

    A Markov chain: each of j ancestors continues from itself with probability 1 - forks. The others
    draw their parents among all n, one after the other.
    """
    chain = np.zeros((n + 1, n + 1))
    for j in range(n + 1):
        for kept in range(j + 1):
            found = np.zeros(n + 1)
            found[kept] = comb(j, kept) * (1 - forks) ** kept * forks ** (j - kept)
            for _ in range(j - kept):
                old = np.arange(n + 1) / n
                found = found * old + np.concatenate(([0.0], found[:-1] * (1 - old[:-1])))
            chain[j] += found
    now = np.zeros(n + 1)
    now[n] = 1.0
    means = []
    for _ in range(steps + 1):
        means.append(float(now @ np.arange(n + 1)))
        now = now @ chain
    return np.array(means)


def saved(prompts: Lengths, outputs: Lengths, n: int, distinct: Floats) -> float:
    """1 - physical / logical blocks over all iterations of all requests.

    distinct[k]: physical copies of a block that was filled k steps ago, for n sequences; the last
    entry is used for all later steps. Iteration 0 computes the prompt, and all is shared. In
    iteration i each sequence holds prompt + i slots.
    """
    copies = np.concatenate(([0.0], np.cumsum(distinct)))

    def summed(steps: Lengths) -> Floats:
        """Sum of distinct[0 .. steps - 1]."""
        known = np.minimum(steps, len(distinct))
        total: Floats = copies[known] + (steps - known) * distinct[-1]
        return total

    size = BLOCK_TOKENS
    ends = prompts + outputs
    held = _summed_ceil(ends) - _summed_ceil(prompts)  # blocks of one sequence, over iterations
    whole = _summed_floor(ends) - _summed_floor(prompts)
    shared = prompts // size
    began = (prompts % size > 0).astype(np.int64)  # an open block in the prompt's own iteration
    filled = (ends - 1) // size - shared  # by the last iteration
    # The steps that are left when each block is filled, request after request.
    nth = np.arange(filled.sum()) - np.repeat(np.cumsum(filled) - filled, filled) + 1
    left = np.repeat(outputs + prompts - shared * size, filled) - nth * size
    # The prompt's full blocks, then blocks filled since, then the last one of each sequence.
    physical = float((shared * outputs).sum()) + float(summed(left).sum())
    physical += float((n * (held - whole - began) + began).sum())
    return 1 - physical / (n * float(held.sum()))


def _summed_floor(ends: Lengths) -> Lengths:
    """Sum of k // BLOCK_TOKENS over k < end, for each end."""
    blocks, rest = ends // BLOCK_TOKENS, ends % BLOCK_TOKENS
    total: Lengths = BLOCK_TOKENS * (blocks * (blocks - 1) // 2) + rest * blocks
    return total


def _summed_ceil(ends: Lengths) -> Lengths:
    """Sum of -(-k // BLOCK_TOKENS) over k < end, for each end."""
    return _summed_floor(ends + BLOCK_TOKENS - 1)
