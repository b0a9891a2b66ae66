"""Who watches an engine step by step: recordings of schedules, replays on a real backend, logs."""

from typing import ClassVar

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.request import Request


@mypyc_attr(allow_interpreted_subclasses=True)
class Observer:
    """Is told of every plan and may look at the scheduler then; it changes nothing. Subclasses
    override what they care for. asks_blocks: whether they ask which block is whose; where nobody
    does, an allocator may count blocks.
    """

    asks_blocks: ClassVar[bool] = True

    def arrived(self, scheduler: Scheduler, request: Request, now_ps: int) -> None:
        """`request` has arrived; whoever of it was let in waits."""

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        """The next step is about to be scheduled."""

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """`plan` has been scheduled; its memory is taken."""

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """Its outputs have been processed; what finished has given its memory back."""

    def idle(self, scheduler: Scheduler, now_ps: int, *, stalled: bool) -> bool:
        """Nothing runs; stalled: and the queue cannot start. True: requests came of it."""
        return False
