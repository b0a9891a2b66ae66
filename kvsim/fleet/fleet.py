"""A fleet: replicas on one clock, and the router that requests come to.

At one instant steps end first, replica by replica: memory is free again, the router's counts fall,
loads are reported. Then requests come, in the order of the stream, each routed by what the router
knows by then. Then replicas plan.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from kvsim.engine.arrivals import Left
from kvsim.engine.observer import Observer
from kvsim.engine.replica import ReplicaSpec, RunningReplica, clock, serve_all, serving
from kvsim.fleet.load import Load
from kvsim.fleet.reports import Reports
from kvsim.fleet.routers.router import RoutedRequest, Router
from kvsim.fleet.watch import ReplicaWatch
from kvsim.request import Request, Stream, TokenRuns
from kvsim.results.fleet import RoutedTo
from kvsim.results.recorder import Recorder
from kvsim.sequence import Sequence as KVSequence
from kvsim.step_time.form import StepTime

PRIVATE = 1 << 58  # ids from here on are those of content that nobody else has


class FleetPart(NamedTuple):
    """One replica as it is to be built."""

    spec: ReplicaSpec
    step_time: StepTime


class Fleet:
    """Replicas behind a router. routed: what it did, request by request.

    reports: what replicas report to it, and when that arrives. regret: ask every replica what it
    has cached of each prompt. observers: beside, one a replica. refuse: see `Intake`.
    looks_ps: see `Engine`; 0: no run of steps is taken at once.
    """

    def __init__(
        self,
        parts: Sequence[FleetPart],
        router: Router,
        stream: Stream,
        *,
        reports: Reports | None = None,
        looks_ps: int | None = None,
        regret: bool = False,
        observers: Sequence[Observer] | None = None,
        progress: Left | None = None,
        refuse: bool = True,
    ) -> None:
        self.router = router
        self.routed: list[RoutedTo] = []
        self._reports = reports
        self._regret = regret
        self._private = PRIVATE
        self.env, self.arrivals = clock(stream, progress)
        self.arrivals.submit = self.submit
        self.replicas: list[RunningReplica] = []
        for number, part in enumerate(parts):
            also = None if observers is None else observers[number]
            spec = replace(part.spec, max_steps=1) if looks_ps == 0 else part.spec
            observer = self._watch(number, also)
            self.replicas.append(
                serving(
                    self.env,
                    replace(spec, unwatched=observer is None),
                    part.step_time,
                    on_left=self._left,
                    recorder=Recorder(part.spec.capacity_bytes),
                    observer=observer,
                    refuse=refuse,
                    routed=True,
                    looks_ps=looks_ps or None,
                )
            )
        if router.needs_cache_events:
            router.cached_tokens = self.cached_tokens

    def _watch(self, number: int, also: Observer | None) -> Observer | None:
        """Who watches this replica; None: nobody needs to."""
        prefilled = self.router.prefilled if self.router.needs_first_tokens else None
        heard: Callable[[Load, int], None] | None = None
        reports = self._reports
        if reports is not None:
            heard = partial(reports.heard, number)
        if prefilled is None and heard is None:
            return also
        needs_tokens = reports is not None and reports.needs_tokens
        return ReplicaWatch(prefilled, heard, needs_tokens=needs_tokens, also=also)

    def run(self) -> None:
        """Serve all requests; afterwards everyone has left and all pools are empty."""
        serve_all(self.env, self.arrivals, self.replicas)

    def submit(self, request: Request) -> None:
        """`request` comes to the router now, and goes to a replica."""
        now_ps, router = int(self.env.now), self.router
        if self._reports is not None:
            loads = self._reports.due(now_ps)
            if loads is not None:
                router.report(loads, now_ps)
        asked = self._asked(request)
        decision = router.decide(asked, now_ps)
        replica = decision.replica
        chosen = best = None
        if self._regret:
            held = [self.cached_tokens(each, asked) for each in router.alive]
            chosen, best = held[router.alive.index(replica)], max(held)
        self.routed.append(RoutedTo(now_ps, request.id, replica, decision.why, chosen, best))
        router.sent(asked, replica, now_ps)
        self.replicas[replica].engine.submit(request)

    def _asked(self, request: Request) -> RoutedRequest:
        """The request as the router sees it: content that nobody else has is of ids of its own."""
        runs: TokenRuns | None = request.prompt_runs
        if runs is None:
            runs = ((self._private, request.prompt_tokens),)
            self._private += request.prompt_tokens
        return RoutedRequest(request.id, request.prompt_tokens, runs, request.session)

    def cached_tokens(self, replica: int, asked: RoutedRequest) -> int:
        """Leading tokens of a prompt that a replica has cached, the last one included."""
        if asked.content[0][0] >= PRIVATE:
            return 0
        runs = (*asked.content, (self._private, 1))  # a hit ends before the last token
        length = asked.length + 1
        probe = KVSequence(Request(asked.id, 0, length, 1, prompt_runs=runs), 0)
        return self.replicas[replica].scheduler.allocator.cached_tokens(probe)

    def _left(self, request: Request) -> None:
        self.router.left(request.id, int(self.env.now))
        self.arrivals.left(request)
