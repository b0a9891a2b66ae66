"""Who watches an engine step by step: recordings of schedules, replays on a real backend."""

from typing import TYPE_CHECKING, Protocol

from kvsim.engine.plan import Plan
from kvsim.plumbing.errors import InvariantError

if TYPE_CHECKING:
    from kvsim.engine.engine import Engine


class Observer(Protocol):
    """Is told of every plan. engine: the engine it watches, which sets it."""

    engine: "Engine"

    def planning(self, now_ps: int) -> None:
        """The next step is about to be scheduled."""

    def planned(self, plan: Plan, now_ps: int) -> None:
        """`plan` has been scheduled; its memory is taken."""

    def finished(self, plan: Plan, now_ps: int) -> None:
        """Its outputs have been processed; what finished has given its memory back."""

    def idle(self, now_ps: int, *, stalled: bool) -> bool:
        """Nothing runs; stalled: and the queue cannot start. True: it has submitted something."""


class NoObserver:
    """Nobody watches; a queue that cannot start is then a fault (see Engine)."""

    engine: "Engine"

    def planning(self, now_ps: int) -> None: ...
    def planned(self, plan: Plan, now_ps: int) -> None: ...
    def finished(self, plan: Plan, now_ps: int) -> None: ...
    def idle(self, now_ps: int, *, stalled: bool) -> bool:
        if stalled:
            raise InvariantError(f"{self.engine.scheduler.waiting.head} can never start")
        return False
