"""The virtual clock of a recorded schedule."""

from pydantic import Field

from kvsim.plumbing.options import Options
from kvsim.plumbing.units import PS_PER_US
from kvsim.step import StepShape
from kvsim.step_time.form import DecodeRun

TICK_PS = PS_PER_US
MOST_TICKS = 10**9  # of the cost of a step


class CaseCost(Options):
    """Ticks of a step: a + b * prefill tokens + c * decoding requests; 0 for an empty step."""

    a: int = Field(ge=0, le=MOST_TICKS)
    b: int = Field(ge=0, le=MOST_TICKS)
    c: int = Field(ge=0, le=MOST_TICKS)


class TickCost:
    """The recorded cost as a step time."""

    def __init__(self, cost: CaseCost) -> None:
        self._cost = cost

    def step_ps(self, shape: StepShape) -> int:
        cost = self._cost
        tokens = shape.prefill_tokens
        if not tokens and not shape.num_decode:
            return 0
        return (cost.a + cost.b * tokens + cost.c * shape.num_decode) * TICK_PS

    def decode_run(
        self, num_decode: int, context_tokens: int, longest_context_tokens: int = 0
    ) -> DecodeRun:
        return DecodeRun((self._cost.a + self._cost.c * num_decode) * TICK_PS, 0)
