"""The pace of a shared machine: the duration of one reference step, timed again and again.

The same step is the sentinel of a CPU's calibration. In a served run it is timed again and again,
with the run's clock stopped. The ratio of the medians of two spans of time says how much slower the
machine was in one of them. Nothing of the run itself enters it.
"""

import numpy as np

from kvsim.backend.measure.grid import StepPlan
from kvsim.backend.measure.timing import CpuClock
from kvsim.backend.step import TokenSpan
from kvsim.backend.stores.pooled import StoreName, pooled_store
from kvsim.backend.transformer.decoder import Decoder
from kvsim.backend.transformer.runner import DecoderRunner

SEQUENCES, CONTEXT, BLOCK_SIZE = 16, 256, 16
PACE_PLAN = StepPlan((), (CONTEXT,) * SEQUENCES, "pace")
BUDGET_S = 0.02


class Pace:
    """Times `PACE_PLAN` on a decoder, on a pool of its own: blocks, or contiguous buffers."""

    def __init__(self, decoder: Decoder, *, blocks: bool) -> None:
        each = CONTEXT // BLOCK_SIZE
        name: StoreName = "paged" if blocks else "contiguous"
        num_blocks = 1 + SEQUENCES * each
        store = pooled_store(name, decoder.shape, num_blocks, BLOCK_SIZE, decoder.device)
        store.pool.fill(0)
        self._runner = DecoderRunner(decoder, store)
        self._clock = CpuClock(BUDGET_S)
        self._spans = [
            TokenSpan(
                f"pace {at}",
                [at % decoder.shape.vocab],
                CONTEXT - 1,
                blocks=range(1 + at * each, 1 + (at + 1) * each),
                slot=at * CONTEXT,
            )
            for at in range(SEQUENCES)
        ]
        self._found: list[float] = []

    def take(self) -> None:
        """Time the pace step once more."""
        self._found.append(self._clock.time(lambda: self._runner.step(self._spans)).seconds)

    @property
    def seconds(self) -> float | None:
        """The median of the times taken; None before the first."""
        return float(np.median(self._found)) if self._found else None
