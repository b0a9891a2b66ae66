"""The rows of steps.csv: what each step of an observed engine computed, and when."""

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
    """Call schedule() until a plan computes something or nothing is left to do. Returns that plan
    and all sequences preempted on the way.

    A call may preempt and schedule nothing. planned is called with every plan.
    """
    preempted: list[Sequence] = []
    while True:
        plan = scheduler.schedule()
        planned(plan)
        preempted += plan.preempted
        if not (plan.empty and plan.preempted):
            return plan, preempted


class ScheduledStep(Options):
    """The scheduler's decisions in one step. Two runs with equal requests before every step have
    equal rows.

    preempted counts the sequences that lost their KV blocks for this step. running and waiting
    count sequences after scheduling. used_bytes (valid KV) and allocated_bytes (all memory that
    sequences hold) are the ledger's values while the step computes. blocks is allocated_bytes in
    blocks, for allocators with blocks. after_allocated_bytes is allocated_bytes once the step's
    outputs are processed.
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
        """The row of a plan that was just scheduled; after_allocated_bytes is not known yet."""
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
        """A copy of the row with after_allocated_bytes, taken once the scheduler has processed the
        plan's outputs.
        """
        allocated = scheduler.allocator.usage(None, busy=False).allocated
        return self.model_copy(update={"after_allocated_bytes": allocated})


class ObservedStep(ScheduledStep):
    """A row of steps.csv: the scheduler's decisions in a step, and the step's times.

    arrived counts the requests that had arrived when the step was scheduled, without refused ones.
    start_s and end_s, in seconds from the first arrival, enclose scheduling, computing and
    processing of outputs. cpu_s is the CPU time of the engine's thread in between.

    Under asynchronous scheduling scheduled_s is when the step was scheduled, while the previous one
    computed; start_s is then the end of the previous step. Sometimes nothing could be scheduled
    while a step was in flight, and this step was scheduled only after its end. alone_arrived counts
    the requests that had arrived at the failed attempt.

    swapped_bytes counts KV bytes moved to host memory and back before the step computed.
    store_requested_bytes, store_allocated_bytes and store_reserved_bytes are the KV memory after
    the step, as the device's own allocator counts it, minus that of the idle engine.
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
        """Only the scheduler's decisions of this row."""
        return ScheduledStep(**{name: getattr(self, name) for name in ScheduledStep.model_fields})
