"""A trial's requests through the simulated engine, and the figures that were recorded of it."""

from collections import deque
from collections.abc import Generator
from dataclasses import replace

import numpy as np
import simpy

from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.replica import Replica, assemble
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.ledger import CLASSES
from kvsim.observed.trial import ServedTimes, Trial
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.request import Stream
from kvsim.results.recorder import Recorder
from kvsim.step_time.form import StepTime

_HELD = ("used", "reserved", "overprovisioned", "rounding")


def simulate_trial(trial: Trial, step_time: StepTime) -> dict[str, float]:
    """All of FIGURES. InputError if the recorded pool could not have served a request."""
    spec = replace(trial.meta.serving(trial.requests).replica_spec(), max_steps=None)
    recorder = Recorder(spec.capacity_bytes)
    clients = _Clients(trial, recorder)
    stream = Stream(() if trial.max_in_flight else trial.requests)
    replica = assemble(spec, stream, step_time, recorder=recorder, observer=clients)
    if trial.max_in_flight:
        clients.start(replica)
        replica.env.run()
    else:
        replica.run()
    if recorder.rejected:
        request, _, reason = recorder.rejected[0]
        raise InputError(reason, where=f"{trial.name}, request {request.id}")
    return _figures(trial, recorder, replica)


def _figures(trial: Trial, recorder: Recorder, replica: Replica) -> dict[str, float]:
    by_id = {
        seq.id: (seq.arrival_ps, seq.first_token_ps, finish_ps)
        for seq, finish_ps in zip(recorder.finished, recorder.finish_ps, strict=True)
    }
    which = range(len(trial.requests)) if trial.counted is None else trial.counted
    requests = [trial.requests[index] for index in which]
    arrival, first, last = np.array([by_id[request.id] for request in requests]).T / PS_PER_S
    served = ServedTimes(
        arrival,
        first,
        last,
        np.array([request.prompt_tokens for request in requests]),
        np.array([request.output_tokens for request in requests]),
    )
    held = sum(
        total for name, total in zip(CLASSES, recorder.time_sum, strict=True) if name in _HELD
    )
    usable = recorder.capacity_bytes - replica.scheduler.usage().metadata
    return served.figures() | {
        "running": recorder.running_sum / recorder.total_ps,
        "kv_cache_usage": held / recorder.total_ps / usable,
        "preemptions": float(replica.scheduler.num_preemptions),
    }


class _Clients(Observer):
    """Sends each request at its time, or later, when one of `max_in_flight` has come back."""

    def __init__(self, trial: Trial, recorder: Recorder) -> None:
        self._waiting = deque(trial.requests)
        self._most = trial.max_in_flight or 0
        self._recorder = recorder
        self._sent = self._back = 0
        self._wake: simpy.Event | None = None

    def start(self, replica: Replica) -> None:
        """Begin to send."""
        replica.env.process(self._send(replica))

    def _send(self, replica: Replica) -> Generator[simpy.Event, None, None]:
        while self._waiting:
            early_ps = self._waiting[0].arrival_ps - replica.engine.now_ps
            if early_ps > 0:
                yield replica.env.timeout(early_ps)
            elif self._sent - self._back < self._most:
                self._sent += 1
                replica.engine.submit(self._waiting.popleft())
            else:
                self._wake = replica.env.event()
                yield self._wake

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """Who has come back makes room for the next."""
        back = len(self._recorder.finished) + len(self._recorder.rejected)
        if back > self._back:
            self._back = back
            if self._wake is not None and not self._wake.triggered:
                self._wake.succeed()
