"""Section 6.2: the request rate that a system sustains at a given latency, and ratios of such
rates.

Latency is normalised: the mean over requests of end-to-end time / output tokens. A rate is
sustained if this is below LATENCY_S over a stream of DURATION_S. The paper's ranges are over
several models, of which OPT-13B is one.
"""

from collections.abc import Iterator
from math import sqrt
from statistics import fmean, stdev

import kvsim
from evidence.paper.check import Check, within
from evidence.paper.experiment import EXPERIMENT, SYSTEMS, Setting, stream
from evidence.paper.lengths import Sampler
from kvsim.plumbing.units import PS_PER_S

SOURCE = "PagedAttention, section 6.2"
OVER_ORACLE, OVER_MAX = (1.7, 2.7), (2.7, 8.0)
LATENCY_S = 0.5
DURATION_S = 2400.0
SEARCHED_PER_S = (0.5, 2.6)
PRECISION = 1.03


def checks(setting: Setting) -> Iterator[Check]:
    """Checks of how much higher vLLM's rate is than Orca's, averaged over a few streams."""
    seeds = range(setting.seed, setting.seed + setting.few)
    rates = {
        name: [sustained(setting.sharegpt, name, seed) for seed in seeds]
        for name in ("Orca (Max)", "Orca (Oracle)", "vLLM")
    }
    for name, span in (("Orca (Oracle)", OVER_ORACLE), ("Orca (Max)", OVER_MAX)):
        quantity = f"vLLM's sustained rate over {name}'s, OPT-13B, ShareGPT"
        ratios = [ours / its for ours, its in zip(rates["vLLM"], rates[name], strict=True)]
        check = within(SOURCE, quantity, span, fmean(ratios), "x")
        yield check._replace(spread=stdev(ratios), streams=setting.few)


def sustained(lengths: Sampler, system: str, seed: int) -> float:
    """Requests/s at which normalised latency reaches LATENCY_S, within a factor of PRECISION."""
    low, high = SEARCHED_PER_S
    while high / low > PRECISION:
        middle = sqrt(low * high)
        if latency_s(lengths, system, middle, seed) <= LATENCY_S:
            low = middle
        else:
            high = middle
    return sqrt(low * high)


def latency_s(lengths: Sampler, system: str, rate_per_s: float, seed: int) -> float:
    """Normalised latency at this rate: mean over requests of seconds from arrival to end / output
    tokens.
    """
    requests = stream(lengths, rate_per_s, DURATION_S, seed)
    (run,) = kvsim.simulate({**EXPERIMENT, **SYSTEMS[system]}, requests).runs
    done = run.requests.loc[run.requests["status"] == "finished"]
    return fmean((done["finish_ps"] - done["arrival_ps"]) / done["output_tokens"]) / PS_PER_S
