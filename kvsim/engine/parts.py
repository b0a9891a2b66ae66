"""The parts that an engine is built from."""

from collections.abc import Callable
from typing import NamedTuple

from kvsim.engine.link import Link
from kvsim.engine.observer import Observer
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.request import Request
from kvsim.results.recorder import Recorder
from kvsim.step_time.form import StepTime


def ignore_departure(request: Request) -> None:
    """The default of `on_left`: do nothing."""


class EngineParts(NamedTuple):
    """The parts of one engine replica.

    scheduler: the scheduler with its allocator. step_time: the step-time model. host_link: the link
    for swapped KV. depth: steps in flight. max_steps: most steps of one plan; 1 runs step by step.
    on_left, refuse: see `Intake`. routed: a router serves several engines. report_interval_ps:
    interval in ps at which the router reads the engine's reports; no run of steps is longer.
    """

    scheduler: Scheduler
    step_time: StepTime
    recorder: Recorder
    host_link: Link
    depth: int = 1
    max_steps: int | None = None
    on_left: Callable[[Request], None] = ignore_departure
    observer: Observer | None = None
    refuse: bool = True
    routed: bool = False
    report_interval_ps: int | None = None
