"""Simulate a published run's requests, and compute the figures that were published."""

from dataclasses import replace

import numpy as np

from kvsim.engine.replica import Replica, assemble
from kvsim.memory.ledger import CLASSES
from kvsim.observed.trial import ServedTimes, Trial
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.request import Stream
from kvsim.results.recorder import Recorder
from kvsim.step_time.form import StepTime

_HELD = ("used", "reserved", "overprovisioned", "rounding")


def simulate_trial(trial: Trial, step_time: StepTime) -> dict[str, float]:
    """Simulate a published run and return all of FIGURES.

    InputError if a request exceeds the recorded KV pool.
    """
    spec = replace(trial.meta.serving(trial.requests).replica_spec(), max_steps=None)
    recorder = Recorder(spec.capacity_bytes)
    stream = Stream(trial.requests, max_concurrency=trial.max_in_flight)
    replica = assemble(spec, stream, step_time, recorder=recorder)
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
