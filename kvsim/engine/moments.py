"""The order of events at one instant.

With one engine, a request that arrives when a step ends is processed before the end. With several
engines of one router, steps end first, so that the router sees their results. Then requests arrive,
then engines plan, then follow-ups without a pause arrive.
"""

from collections.abc import Callable

import simpy
from simpy.events import EventPriority

ARRIVALS = EventPriority(1)
STEP_ENDS = EventPriority(2)
ROUTED_ARRIVALS = EventPriority(3)
PLANS = EventPriority(4)
LATE_ARRIVALS = EventPriority(5)


def moment(env: simpy.Environment, delay_ps: int, priority: EventPriority) -> simpy.Event:
    """An event that occurs after delay_ps; `priority` orders it among the events of that
    instant.
    """
    event = simpy.Event(env)
    event._ok, event._value = True, None
    env.schedule(event, priority, delay_ps)
    return event


def call_at(
    env: simpy.Environment,
    time_ps: int,
    priority: EventPriority,
    call: Callable[[simpy.Event], None],
) -> None:
    """Call `call` at time_ps; `priority` orders the call among the events of that instant."""
    callbacks = moment(env, time_ps - int(env.now), priority).callbacks
    assert callbacks is not None
    callbacks.append(call)
