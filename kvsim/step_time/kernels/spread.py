"""How far the numbers of single servers differ from those of their kind, and lower bounds of the
numbers.

A few measurements determine the numbers of a correction poorly. So every fit to a server draws each
number towards its usual value, as in ridge regression, weighted by this spread. `kvsim import`,
`calibrate pace` and `validate run --fit` share it. The spreads are standard deviations over the
sources of evidence/points/fit_prior.py.
"""

from typing import NamedTuple

from kvsim.plumbing.units import PS_PER_US
from kvsim.step import Chunk, StepShape
from kvsim.step_time.kernels.composed import KernelSteps

SCALE = 0.1
STEP_SHARE, STEP_US = 0.35, 300.0
SEQUENCE_US = 20.0
PROMPTS_SHARE, PROMPTS_US = 0.3, 4000.0
LAUNCH_SHARE = 0.5
TOKEN_SHARE = 0.3  # share of the kernel time of a prompt token
FRONT_MS = 10.0  # of a request before the engine
LOWEST_SCALE, LOWEST_STEP, LOWEST_TOKEN = -0.5, -0.9, -0.5
LONG_CHUNK = 16_384  # tokens


class Numbers(NamedTuple):
    """Numbers of a correction. scale: relative change of the kernels' times (0.1: 10 % longer). The
    others are times in us: of a step, a sequence, a step with prompts, its launches, and a prompt
    token.
    """

    scale: float
    overhead_us: float
    sequence_us: float
    prompts_us: float
    prompt_launch_us: float
    prompt_token_us: float


class UsualSpread(NamedTuple):
    """usual: standard deviation of each number over servers. least: lower bound of each number."""

    usual: Numbers
    least: Numbers


def spread_of(form: KernelSteps) -> UsualSpread:
    """Spread and lower bounds for servers with these step times."""
    host = form.host
    step_us, prompts_us = host.step_ps / PS_PER_US, host.prompts_ps / PS_PER_US
    launch_us, token_us = host.prompt_launch_ps / PS_PER_US, _prompt_token_us(form)
    return UsualSpread(
        Numbers(
            SCALE,
            STEP_SHARE * step_us + STEP_US,
            SEQUENCE_US,
            PROMPTS_SHARE * prompts_us + PROMPTS_US,
            LAUNCH_SHARE * launch_us,
            TOKEN_SHARE * token_us,
        ),
        Numbers(
            LOWEST_SCALE,
            LOWEST_STEP * step_us,
            -host.sequence_ps / PS_PER_US,
            -prompts_us,
            LOWEST_STEP * launch_us,
            LOWEST_TOKEN * token_us,
        ),
    )


def _prompt_token_us(form: KernelSteps) -> float:
    """Time in us of one more token in a long prompt chunk."""
    tokens = LONG_CHUNK // 2  # long enough that kernels take longer than launches
    one, two = (form.step_ps(StepShape((Chunk(each, 0),), 0, 0)) for each in (tokens, LONG_CHUNK))
    return (two - one) / tokens / PS_PER_US
