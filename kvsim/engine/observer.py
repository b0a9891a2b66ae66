"""The interface of observers of an engine's steps: recorders of schedules, replays on a real
backend, logs.
"""

from typing import ClassVar

from mypy_extensions import mypyc_attr

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.request import Request


@mypyc_attr(allow_interpreted_subclasses=True)
class Observer:
    """Notified of every plan, when it may read the scheduler; it changes nothing. Subclasses
    override the calls that they need.

    asks_blocks: it reads block ids; if not, an allocator may count blocks without numbering them.
    """

    asks_blocks: ClassVar[bool] = True

    def arrived(self, scheduler: Scheduler, request: Request, now_ps: int) -> None:
        """Called when `request` has arrived; if not refused, its sequences are in the queue."""

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        """Called before the next step is scheduled."""

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """Called when `plan` is scheduled and its memory allocated."""

    def polled(self, scheduler: Scheduler, plan: Plan) -> None:
        """`plan` waited for copies before its launch, and the poll after it has happened since
        `planned`.
        """

    def launched_together(self, scheduler: Scheduler, plan: Plan, now_ps: int, end_ps: int) -> None:
        """Called when all ranks in lockstep have launched a step, which ends at end_ps. plan: this
        rank's part of the step, empty if the rank computes nothing.
        """

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """Called when the outputs of `plan` are processed and finished sequences have freed their
        memory.
        """

    def idle(self, scheduler: Scheduler, now_ps: int, *, stalled: bool) -> bool:
        """Called when no step runs; returns whether this call submitted requests. stalled: requests
        wait and cannot start.
        """
        return False
