"""The rows of steps.csv: what an observed engine did, step by step."""

from collections.abc import Callable

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.plumbing.options import Options
from kvsim.sequence import Sequence
from kvsim.step import StepShape


def schedule_step(
    scheduler: Scheduler, planned: Callable[[Plan], object] = lambda _: None
) -> tuple[Plan, list[Sequence]]:
    """The next plan that computes something, or an empty one, and all sequences preempted for it: a
    schedule may do nothing but preempt. planned: called with each.
    """
    preempted: list[Sequence] = []
    while True:
        plan = scheduler.schedule()
        planned(plan)
        preempted += plan.preempted
        if not (plan.empty and plan.preempted):
            return plan, preempted


class ScheduledStep(Options):
    """A step as the scheduler decided it: the same for the same requests in the same steps.

    preempted: how many lost their memory for it. running, waiting: sequences, it included.
    used_bytes, allocated_bytes: of the ledger while it computes: valid KV, and all that
    sequences hold. blocks: the latter in blocks, of an allocator that has them.
    after_allocated_bytes: when its outputs have been processed.
    """

    prefill_tokens: NonNegativeInt
    decode_seqs: NonNegativeInt
    decode_context_tokens: NonNegativeInt
    preempted: NonNegativeInt
    running: NonNegativeInt
    waiting: NonNegativeInt
    blocks: NonNegativeInt | None = None
    used_bytes: NonNegativeInt
    allocated_bytes: NonNegativeInt
    after_allocated_bytes: NonNegativeInt = 0

    @classmethod
    def of(
        cls, plan: Plan, shape: StepShape, preempted: list[Sequence], scheduler: Scheduler
    ) -> "ScheduledStep":
        """The row of a plan just made; what comes after it is not known yet."""
        allocator = scheduler.allocator
        usage = allocator.usage(None, busy=True)
        block_size = getattr(allocator, "block_size", None)
        return cls(
            prefill_tokens=shape.prefill_tokens,
            decode_seqs=shape.num_decode,
            decode_context_tokens=shape.context_tokens,
            preempted=len(preempted),
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            blocks=block_size and usage.allocated // (block_size * allocator.token_bytes),
            used_bytes=usage.used,
            allocated_bytes=usage.allocated,
        )

    def after(self, scheduler: Scheduler) -> "ScheduledStep":
        """The same row when the scheduler has finished the plan."""
        allocated = scheduler.allocator.usage(None, busy=False).allocated
        return self.model_copy(update={"after_allocated_bytes": allocated})


class ObservedStep(ScheduledStep):
    """A row of steps.csv: a step, and how it went.

    arrived: requests that had come when it was scheduled, refused ones left out.
    start_s, end_s: from before it was scheduled until its outputs had been processed, in seconds
    from the first arrival. cpu_s: time of the engine's thread on a core meanwhile.
    scheduled_s: where a step is scheduled while the one before it computes: when; start_s is then
    the end of that one. alone_arrived: requests that had come when nothing could be scheduled next
    to the step in flight; this one was scheduled when that had returned.
    swapped_bytes: KV moved to host memory and back before it computed.
    store_requested_bytes, store_allocated_bytes, store_reserved_bytes: KV memory as the device's
    own allocator counts it after the step, beyond what the idle engine had.
    """

    arrived: NonNegativeInt
    start_s: NonNegativeFloat
    end_s: NonNegativeFloat
    cpu_s: NonNegativeFloat
    scheduled_s: NonNegativeFloat | None = None
    alone_arrived: NonNegativeInt | None = None
    swapped_bytes: NonNegativeInt = 0
    store_requested_bytes: int = Field(0)
    store_allocated_bytes: int = Field(0)
    store_reserved_bytes: int = Field(0)

    def scheduled(self) -> ScheduledStep:
        """The scheduler's decisions in this step."""
        return ScheduledStep(**{name: getattr(self, name) for name in ScheduledStep.model_fields})
