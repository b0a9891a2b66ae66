"""Submits the requests of a stream at their arrival times; a follow-up arrives after the request
before it has left.
"""

from collections import deque
from collections.abc import Callable, Generator

import simpy

from kvsim.engine.clock import EngineClock
from kvsim.engine.moments import ARRIVALS, LATE_ARRIVALS, ROUTED_ARRIVALS, call_at, moment
from kvsim.followers import Followers
from kvsim.request import Request, Stream

Left = Callable[[int, int], None]
MOST_BETWEEN = 256  # departures between two reports of progress; of few requests, a hundredth


class Arrivals:
    """Submits the requests of a stream.

    progress: called from time to time with (requests that have left, all requests). submit:
    receives the requests; set before the first arrival. routed: a router serves several engines. A
    request that is due while max_concurrency requests are in flight is sent, in order, when one has
    left.
    """

    submit: Callable[[Request], None]

    def __init__(
        self,
        env: EngineClock,
        stream: Stream,
        progress: Left | None = None,
        *,
        routed: bool = False,
    ) -> None:
        self._env = env
        self._priority = ROUTED_ARRIVALS if routed else ARRIVALS
        self._at_once = LATE_ARRIVALS if routed else ARRIVALS
        self._progress = progress
        self._total = len(stream.requests)
        self._every = min(max(self._total // 100, 1), MOST_BETWEEN)
        self._num_left = 0
        self._roots = [request for request in stream.requests if request.after is None]
        self._followers = Followers(stream.requests)
        self._num_come = 0  # of the roots
        self._max_concurrency = stream.max_concurrency or 0
        self._in_flight = 0
        self._held: deque[Request] = deque()
        env.process(self._begin())

    @property
    def missing(self) -> int:
        """Number of requests that have not left yet."""
        return self._total - self._num_left

    def _begin(self) -> Generator[simpy.Event, None, None]:
        """Submit the requests at time 0 before the engine plans."""
        self._submit_due(None)
        yield from ()

    def _submit_due(self, _: simpy.Event | None) -> None:
        """Submit the due requests that follow no other, and wait for the next one."""
        env, roots = self._env, self._roots
        now = env.now
        while self._num_come < len(roots):
            request = roots[self._num_come]
            if request.arrival_ps > now:
                call_at(env, request.arrival_ps, self._priority, self._submit_due)
                return
            self._num_come += 1
            self._send(request)

    def _send(self, request: Request) -> None:
        """Submit `request` now, or when max_concurrency allows."""
        if self._max_concurrency:
            if self._in_flight >= self._max_concurrency:
                self._held.append(request)
                return
            self._in_flight += 1
        self.submit(request)

    def left(self, request: Request) -> None:
        """`request` has left: schedule its follow-ups after their pause."""
        self._num_left += 1
        if self._progress is not None and (self._num_left % self._every == 0 or not self.missing):
            self._progress(self._num_left, self._total)
        if self._held:  # before requests that arrive now
            self._env.process(self._after(0, self._held.popleft(), self.submit))
        else:
            self._in_flight -= 1
        for follower in self._followers.after(request):
            self._env.process(self._after(follower.think_ps, follower, self._send))

    def _after(
        self, pause_ps: int, request: Request, send: Callable[[Request], None]
    ) -> Generator[simpy.Event, None, None]:
        env, priority = self._env, self._priority if pause_ps else self._at_once
        yield moment(env, pause_ps, priority)
        env.late = priority is LATE_ARRIVALS
        send(request)
        env.late = False
