"""Times micro-batches over the stages of a pipeline: several are in flight, one in each stage."""

from kvsim.step import StepShape
from kvsim.step_time.stages import StageTimes


class Pipeline:
    """Tracks when each stage is free. Micro-batches pass all stages in the order of their start."""

    def __init__(self, times: StageTimes) -> None:
        self._times = times
        self.num_stages = len(times.forms)
        self._free_ps = [0] * self.num_stages

    def end_ps(self, shape: StepShape, from_ps: int) -> int:
        """Run a micro-batch that may start at from_ps through all stages; returns when it leaves
        the last one.
        """
        at_ps, free_ps = from_ps, self._free_ps
        sends_ps = self._times.send_ps(shape.num_tokens)
        for stage, stage_ps in enumerate(self._times.stage_ps(shape)):
            at_ps = free_ps[stage] = max(at_ps, free_ps[stage]) + stage_ps
            if stage < len(sends_ps):
                at_ps += sends_ps[stage]
        return at_ps
