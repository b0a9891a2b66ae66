"""P/D disaggregation: prefill replicas and decode replicas, each side with its own router."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvsim.engine.clock import EngineClock
from kvsim.engine.replica import Replica, ReplicaSpec
from kvsim.engine.transfers.handoff import Handoff, TransferSpec, prompt_of
from kvsim.fleet.load import Load
from kvsim.fleet.members import FleetPart, MemberHooks, SingleReplica
from kvsim.fleet.pool import RoutedPool, view_of
from kvsim.fleet.routers.options import RouterOptions
from kvsim.request import Request
from kvsim.sequence import Sequence as KVSequence
from kvsim.step_time.form import StepTime
from kvsim.support.parts import ServerParts
from kvsim.support.table import check


class DeploymentSide(NamedTuple):
    """The replicas of one side (prefill or decode), and their router. With `lockstep` of the
    router, several replicas are data-parallel ranks that step together.
    """

    spec: ReplicaSpec
    step_time: StepTime
    replicas: int
    router: RouterOptions


class PrefillDecodePart(NamedTuple):
    """A specification of both sides of a deployment. prepare: sets each request's flags for the KV
    transfer. seed: of the routers' draws.
    """

    kind: type[Handoff]
    transfers: TransferSpec
    prefill: DeploymentSide
    decode: DeploymentSide
    prepare: Callable[[Handoff], None] = lambda handoff: None
    seed: int = 0

    @property
    def spec(self) -> ReplicaSpec:
        """The specification of the side with the prefix caches that save computation."""
        return self.prefill.spec

    def build(self, env: EngineClock, hooks: MemberHooks) -> "PrefillDecode":
        """Build all replicas on this clock."""
        return PrefillDecode(env, self, hooks)


class PrefillDecode:
    """A deployment of prefill and decode replicas, as one member of a fleet. prefill, decode: the
    replicas of each side.

    A fleet's router reads the summed loads of both sides. A request counts as prefilled when the
    prefill replica has computed its prompt.
    """

    def __init__(self, env: EngineClock, part: PrefillDecodePart, hooks: MemberHooks) -> None:
        self._env, self._hooks = env, hooks
        self.handoff = part.kind(env, part.transfers)
        part.prepare(self.handoff)
        self._loads: list[Load] = []
        self.num_prompts = 0  # sent to prefill replicas
        spec = self.handoff.prefill_spec(part.prefill.spec)
        self._prompts = self._pool(part, part.prefill._replace(spec=spec), self._prefilled)
        spec = self.handoff.decode_spec(part.decode.spec)
        self._outputs = self._pool(part, part.decode._replace(spec=spec), hooks.left)
        self.prefill, self.decode = _replicas(self._prompts), _replicas(self._outputs)
        self.replicas: Sequence[Replica] = (*self.prefill, *self.decode)
        self.handoff.connect(
            [each.engine for each in self.prefill], [each.engine for each in self.decode]
        )

    def _pool(
        self, part: PrefillDecodePart, side: DeploymentSide, left: Callable[[Request], None]
    ) -> RoutedPool:
        own = FleetPart(side.spec, side.step_time)
        view = view_of(own, side.replicas, part.seed)
        looks = [
            each
            for each in (self._hooks.report_interval_ps, side.router.report_interval_ps)
            if each is not None
        ]
        together = None
        if side.router.lets_step_together and side.replicas > 1:
            check(ServerParts(lockstep=True, transfers=side.spec.scheduler.engine or ""))
            together = side.router.together(self._env)
        parts = [_Heard(own, self._loads, self._hooks) for _ in range(side.replicas)]
        return RoutedPool(
            self._env,
            parts,
            side.router.build(view),
            MemberHooks(
                left,
                refuse=self._hooks.refuse,
                report_interval_ps=min(looks, default=None),
                waves=together,
            ),
            reports=side.router.reports(view),
        )

    def cached_tokens(self, probe: KVSequence) -> int:
        """Leading prompt tokens of `probe` in the prefill replica's prefix cache that has the
        most.
        """
        return max(each.cached_tokens(probe) for each in self._prompts.members)

    def submit(self, request: Request) -> None:
        """Choose a prefill and a decode replica for `request`, which arrives now; either may reject
        it.
        """
        prefill, decode = self._prompts.choose(request), self._outputs.choose(request)
        receiver = self.decode[decode].engine
        prompt = prompt_of(request)
        refusal = receiver.refusal(request) or self.prefill[prefill].engine.refusal(prompt)
        if refusal is not None:
            self._prompts.router.left(request.id, int(self._env.now))
            receiver.turn_away(request, refusal)
            return
        self.num_prompts += 1
        self.handoff.submit(request, prefill, decode)

    def _prefilled(self, request: Request) -> None:
        now_ps = int(self._env.now)
        for hear in (self._outputs.router.prefilled, self._hooks.prefilled):
            if hear is not None:
                hear(request.id, now_ps)
        self.handoff.prefilled(request)


class _Heard(NamedTuple):
    """A replica of one side that reports its load to that side's router and, summed over `loads`,
    to the fleet's router.
    """

    part: FleetPart
    loads: list[Load]
    outer: MemberHooks

    @property
    def spec(self) -> ReplicaSpec:
        return self.part.spec

    def build(self, env: EngineClock, hooks: MemberHooks) -> SingleReplica:
        beyond, inner = self.outer.heard, hooks.heard
        if beyond is None:
            return self.part.build(env, hooks)
        number, loads = len(self.loads), self.loads
        loads.append(Load())

        def heard(load: Load, now_ps: int) -> None:
            if inner is not None:
                inner(load, now_ps)
            loads[number] = load
            sums = [sum(each) for each in zip(*loads, strict=True)]
            whole = Load(*sums)._replace(kv_usage=sums[2] / len(loads), written_ps=now_ps)
            beyond(whole, now_ps)

        needs_tokens = hooks.needs_tokens or self.outer.needs_tokens
        return self.part.build(env, hooks._replace(heard=heard, needs_tokens=needs_tokens))


def _replicas(pool: RoutedPool) -> list[Replica]:
    return [replica for member in pool.members for replica in member.replicas]
