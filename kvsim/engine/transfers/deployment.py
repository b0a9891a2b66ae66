"""Replicas for prompts and replicas for outputs, on one clock: the only place where they meet."""

from collections.abc import Callable
from typing import NamedTuple

import simpy

from kvsim.engine.arrivals import Arrivals, Left
from kvsim.engine.replica import ReplicaSpec, RunningReplica, serve_all, serving
from kvsim.engine.transfers.handoff import Handoff, TransferSpec, prompt_of
from kvsim.request import Request, Stream
from kvsim.step_time.form import StepTime


class DeploymentSide(NamedTuple):
    """The replicas of one kind. choose: which of them a request goes to. left: called when one of
    them has done all that it does for a request.
    """

    spec: ReplicaSpec
    step_time: StepTime
    replicas: int
    choose: Callable[[Request, int], int]
    left: Callable[[Request, int], None]


class PrefillDecode:
    """All replicas, ready to run. prefill, decode: those of each kind."""

    def __init__(
        self,
        kind: type[Handoff],
        transfers: TransferSpec,
        prefill: DeploymentSide,
        decode: DeploymentSide,
        stream: Stream,
        progress: Left | None = None,
        prepare: Callable[[Handoff], None] = lambda handoff: None,
    ) -> None:
        self._env = simpy.Environment()
        self._sides = prefill, decode
        self.handoff = kind(self._env, transfers)
        prepare(self.handoff)
        self._arrivals = Arrivals(self._env, stream, progress)
        self._arrivals.submit = self._submit
        spec = self.handoff.prefill_spec(prefill.spec)
        self.prefill = self._replicas(spec, prefill, self._prefilled)
        spec = self.handoff.decode_spec(decode.spec)
        self.decode = self._replicas(spec, decode, self._left)
        self.handoff.connect(
            [each.engine for each in self.prefill], [each.engine for each in self.decode]
        )

    def _replicas(
        self, spec: ReplicaSpec, side: DeploymentSide, on_left: Callable[[Request], None]
    ) -> list[RunningReplica]:
        return [
            serving(self._env, spec, side.step_time, on_left=on_left) for _ in range(side.replicas)
        ]

    def _submit(self, request: Request) -> None:
        now_ps = int(self._env.now)
        prefill, decode = (side.choose(request, now_ps) for side in self._sides)
        receiver = self.decode[decode].engine
        prompt = prompt_of(request)
        refusal = receiver.refusal(request) or self.prefill[prefill].engine.refusal(prompt)
        if refusal is not None:
            self._sides[0].left(request, now_ps)
            receiver.turn_away(request, refusal)
            return
        self.handoff.submit(request, prefill, decode)

    def _prefilled(self, request: Request) -> None:
        self._sides[0].left(request, int(self._env.now))
        self.handoff.prefilled(request)

    def _left(self, request: Request) -> None:
        self._sides[1].left(request, int(self._env.now))
        self._arrivals.left(request)

    def run(self) -> None:
        """Serve all requests; afterwards everyone has left and all pools are empty."""
        serve_all(self._env, self._arrivals, (*self.prefill, *self.decode))
