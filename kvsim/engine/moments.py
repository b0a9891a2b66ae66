"""The order of what happens at one instant.

One engine: what arrives at the instant a step ends comes before the end, for nobody looks between
the two. Several engines behind a router: steps end first, so that the router sees what they leave
behind; then requests come; then engines plan; whoever follows at once comes after that.
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
    """An event that comes after delay_ps, at its place among those of that instant."""
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
    """Call `call` at time_ps, at its place among the events of that instant."""
    callbacks = moment(env, time_ps - int(env.now), priority).callbacks
    assert callbacks is not None
    callbacks.append(call)
