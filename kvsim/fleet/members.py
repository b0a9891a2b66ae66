"""Members that a router chooses from: a replica, or several replicas that serve a request
together.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kvsim.engine.clock import EngineClock
from kvsim.engine.observer import Observer
from kvsim.engine.replica import Replica, ReplicaSpec, serving
from kvsim.request import Request
from kvsim.results.recorder import Recorder
from kvsim.sequence import Sequence as KVSequence
from kvsim.step_time.form import StepTime

if TYPE_CHECKING:
    from kvsim.engine.connectors.shared import Shared
    from kvsim.engine.ranks import Ranks
    from kvsim.engine.waves import Waves
    from kvsim.fleet.load import Load


class MemberHooks(NamedTuple):
    """Callbacks and shared parts that a fleet installs in a member.

    left: called with each request that has left. prefilled, heard: called with first tokens and
    with changed loads (see `ReplicaWatch`); None: not called. refuse, report_interval_ps: see
    `EngineParts`; report_interval_ps = 0: steps are taken one by one. observer: a further observer.
    waves: DP lockstep of its engine; None: without. shared: tiers shared with other members.
    """

    left: Callable[[Request], None]
    prefilled: Callable[[str, int], None] | None = None
    heard: "Callable[[Load, int], None] | None" = None
    needs_tokens: bool = False
    observer: Observer | None = None
    refuse: bool = True
    report_interval_ps: int | None = None
    waves: "Waves | Ranks | None" = None
    shared: "Shared | None" = None

    def watch(self) -> Observer | None:
        """The observer of a replica of the member; None: none is needed."""
        if self.prefilled is None and self.heard is None:
            return self.observer
        from kvsim.fleet.watch import ReplicaWatch  # only replicas of a fleet are watched

        return ReplicaWatch(
            self.prefilled, self.heard, needs_tokens=self.needs_tokens, also=self.observer
        )


class FleetMember(Protocol):
    """A member that the router can choose. replicas: all replicas that serve its requests."""

    @property
    def replicas(self) -> Sequence[Replica]: ...

    def submit(self, request: Request) -> None:
        """Submit `request` at the current time."""
        ...

    def cached_tokens(self, probe: KVSequence) -> int:
        """Leading prompt tokens of `probe` that are in the member's prefix cache."""
        ...


class AnyPart(Protocol):
    """A specification from which a member is built. capacity, layout and blocks are those of
    `spec`.
    """

    @property
    def spec(self) -> ReplicaSpec: ...

    def build(self, env: EngineClock, hooks: MemberHooks) -> FleetMember:
        """Build the member on this clock; InputError if it cannot be built."""
        ...


class FleetPart(NamedTuple):
    """A specification of one replica."""

    spec: ReplicaSpec
    step_time: StepTime

    def build(self, env: EngineClock, hooks: MemberHooks) -> "SingleReplica":
        """Build the replica on this clock."""
        watch = hooks.watch()
        spec = replace(self.spec, unwatched=watch is None, shared=hooks.shared)
        if hooks.report_interval_ps == 0 or hooks.waves is not None:
            spec = replace(spec, max_steps=1)
        return SingleReplica(
            serving(
                env,
                spec,
                self.step_time,
                on_left=hooks.left,
                recorder=Recorder(spec.capacity_bytes),
                observer=watch,
                refuse=hooks.refuse,
                routed=True,
                report_interval_ps=hooks.report_interval_ps or None,
                waves=hooks.waves,
            )
        )


class SingleReplica:
    """A member of one replica, which serves prompts and outputs, or in a disaggregated deployment
    only one of the two.
    """

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.replicas = (replica,)
        self.submit = replica.engine.submit

    def cached_tokens(self, probe: KVSequence) -> int:
        """Leading prompt tokens of `probe` that are in the replica's prefix cache."""
        return self.replica.scheduler.allocator.cached_tokens(probe)
