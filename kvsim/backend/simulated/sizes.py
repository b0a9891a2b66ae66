"""Step sizes of a simulated run, to capture in CUDA graphs before the real run."""

from dataclasses import dataclass, field

from kvsim.backend.shape import Shape
from kvsim.backend.transformer.graphs import DECODE_SIZES, GraphSize
from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.options import AllocatorOptions
from kvsim.simulation import Simulation


@dataclass(slots=True)
class _SizeRecorder(Observer):
    """Observer that records one step for each CUDA graph size."""

    shape: Shape
    steps: dict[GraphSize, list[int]] = field(default_factory=dict)

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """Keep the new tokens of its spans, if no step of its size is known."""
        news = [1] * plan.num_decode + [chunk.new_tokens for chunk in plan.chunks]
        size = GraphSize.holding(self.shape, news) if news else None
        if size is not None:
            self.steps.setdefault(size, news)


def likely_steps(
    simulation: Simulation, options: AllocatorOptions, shape: Shape
) -> list[list[int]]:
    """New tokens by span: a step of every size that the simulated run has, and every decode step.

    The real run has its own times, so its steps may be others; most are not.
    """
    recorder = _SizeRecorder(shape)
    simulation.run(options, "sizes", observer=recorder)
    most = getattr(simulation.scenario.scheduler, "max_num_seqs", DECODE_SIZES[-1])
    decodes = [[1] * size for size in DECODE_SIZES if size < 2 * most]
    return [*recorder.steps.values(), *decodes]
