"""What an engine is put together from."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kvsim.engine.link import Link
from kvsim.engine.observer import Observer
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.request import Request
from kvsim.results.recorder import Recorder
from kvsim.step_time.form import StepTime

if TYPE_CHECKING:
    from kvsim.engine.waves import Waves


def nobody_asks(request: Request) -> None:
    """Called with each request that has left, where nobody waits for it."""


class EngineParts(NamedTuple):
    """The parts of one engine replica.

    scheduler: with its allocator. step_time: of its steps. host_link: for what is swapped or
    loaded. depth: steps in flight. max_steps: most steps one plan may stand for; 1 gives the
    step-by-step run. on_left, refuse: see `Intake`. routed: the engine is one of several behind a
    router; looks_ps: the router reads what the engine reports at this interval in picoseconds, and
    no run of steps lasts longer. waves: those that its steps are part of; None: it steps alone.
    """

    scheduler: Scheduler
    step_time: StepTime
    recorder: Recorder
    host_link: Link
    depth: int = 1
    max_steps: int | None = None
    on_left: Callable[[Request], None] = nobody_asks
    observer: Observer | None = None
    refuse: bool = True
    routed: bool = False
    looks_ps: int | None = None
    waves: "Waves | None" = None
