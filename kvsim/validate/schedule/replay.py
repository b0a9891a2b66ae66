"""Runs a recorded case step by step."""

from collections import deque

from kvsim.engine.replica import assemble
from kvsim.request import Request, Stream
from kvsim.validate.schedule.case import Case
from kvsim.validate.schedule.rows import Row
from kvsim.validate.schedule.ticks import TickCost


def simulate_rows(case: Case, *, stall_once: bool = False) -> list[Row]:
    """The rows kvsim produces for `case`, one a step."""
    by_step: dict[int, list[Request]] = {}
    timed: list[Request] = []
    for request in case.requests:
        if request.arrival_step is None:
            timed += request.requests()
        else:
            by_step.setdefault(request.arrival_step, []).extend(request.requests())
    timed.sort(key=lambda request: request.arrival_ps)
    observer = case.observer(deque(sorted(by_step.items())), stall_once=stall_once)
    replica = assemble(
        case.replica_spec(),
        Stream(tuple(timed)),
        TickCost(case.cost),
        observer=observer,
        refuse=False,
    )
    observer.submit = replica.engine.submit
    replica.env.run()
    return observer.rows
