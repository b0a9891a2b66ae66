"""How long the step of a plan takes."""

from collections import deque
from collections.abc import Iterable

from kvsim.engine.pipeline import Pipeline
from kvsim.engine.plan import UNBOUNDED, Plan
from kvsim.step import StepShape
from kvsim.step_time.form import Measured, StepTime
from kvsim.step_time.stages import StageTimes


class StepTimer:
    """How long the steps of a plan take, on one device or over the stages of a pipeline.

    over_stages: whether micro-batches pass the stages of a pipeline.
    """

    def __init__(self, step_time: StepTime) -> None:
        self._step_time = step_time
        self._measured = step_time if isinstance(step_time, Measured) else None
        stages = step_time if isinstance(step_time, StageTimes) else None
        self._pipeline = None if stages is None else Pipeline(stages)
        self.over_stages = stages is not None

    def time(self, plan: Plan, now_ps: int, in_flight: deque[Plan]) -> None:
        """Set how long the step of the plan takes, and its repetitions. in_flight: the plans
        scheduled before it that have not returned.
        """
        if self._pipeline is not None:
            after_ps = _tokens_ps(in_flight, self._pipeline.num_stages)
            from_ps = max(now_ps + plan.stall_ps, after_ps)
            end_ps = self._pipeline.end_ps(plan.shape(), from_ps)
            plan.first_ps = max(plan.stall_ps, end_ps - plan.start_ps)
        elif plan.chunks or plan.num_drafts:
            plan.first_ps = plan.stall_ps + self._step_time.step_ps(plan.shape())
        else:
            run = self._step_time.decode_run(
                plan.num_decode, plan.context_tokens, plan.longest_context_tokens
            )
            plan.first_ps, plan.growth_ps = plan.stall_ps + run.first_ps, run.growth_ps
            plan.affine_steps = UNBOUNDED if run.steps is None else run.steps
        if self._measured is not None:
            plan.outside = self._measured.outside_domain(plan.shape())

    def time_run(self, plan: Plan, shapes: Iterable[StepShape]) -> int:
        """Time each further step of a plan that verifies drafts, by its accepted tokens; shapes:
        those steps. Returns for how many of them the plan stays within, or outside, the measured
        range.
        """
        plan.ends_ps = [plan.first_ps]
        for shape in shapes:
            if self._measured is not None and self._measured.outside_domain(shape) != plan.outside:
                break
            plan.ends_ps.append(plan.ends_ps[-1] + self._step_time.step_ps(shape))
        return len(plan.ends_ps) - 1


def _tokens_ps(in_flight: deque[Plan], num_stages: int) -> int:
    """Under asynchronous scheduling over stages, the time at which the first stage has the tokens
    that the next micro-batch may continue from: those of the one as many micro-batches before as
    there are stages (vLLM 0.33, v1/worker/gpu/pp_utils.py). Otherwise 0.
    """
    if len(in_flight) < num_stages or not in_flight[0].continues:
        return 0
    return in_flight[0].end_ps
