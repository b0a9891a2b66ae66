"""Compare numbers of a real server with those simulated for the same requests."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from kvsim.observed.trial import Trial
from kvsim.validate.run.comparison import RunComparison
from kvsim.validate.run.intervals import ratio_interval

Unit = Literal["s", "share", "count"]
_TRIAL: dict[str, tuple[str, Unit]] = {
    "ttft_s": ("TTFT, mean", "s"),
    "tpot_s": ("TPOT, mean", "s"),
    "e2e_s": ("E2E, mean", "s"),
    "makespan_s": ("makespan", "s"),
    "kv_cache_usage": ("KV cache in use, mean", "share"),
    "running": ("running, mean", "count"),
    "preemptions": ("preemptions", "count"),
}
_CURVES: dict[str, tuple[str, Unit]] = {
    "kv_cache_usage": _TRIAL["kv_cache_usage"],
    "running": _TRIAL["running"],
    "waiting": ("waiting, mean", "count"),
}


class Beside(NamedTuple):
    """One number, real and simulated. unit: seconds, a share of 1, or a count. real: None if not
    recorded. low, high: 95 % interval of the difference over samples of requests; relative, but for
    shares absolute; None if unknown.
    """

    name: str
    unit: Unit
    real: float | None
    simulated: float
    low: float | None = None
    high: float | None = None

    @property
    def difference(self) -> float | None:
        """The difference of simulated and real: relative, but for shares absolute; None if
        undefined.
        """
        if self.real is None:
            return None
        if self.unit == "share":
            return self.simulated - self.real
        return self.simulated / self.real - 1.0 if self.real else None


def beside_run(compared: RunComparison) -> tuple[Beside, ...]:
    """The numbers of an observed run with times for every request."""
    return (*_hits(compared), *_curves(compared), *_latencies(compared))


def beside_trial(trial: Trial, simulated: dict[str, float]) -> tuple[Beside, ...]:
    """The numbers of a published run, as far as its figures are known."""
    return tuple(
        Beside(words, unit, trial.recorded[name], simulated[name])
        for name, (words, unit) in _TRIAL.items()
        if name in trial.recorded and name in simulated
    )


def _hits(compared: RunComparison) -> Iterator[Beside]:
    rows, found = compared.run.rows, compared.replay.cached_tokens
    asked = [row.prompt_tokens for row in rows]
    simulated = sum(found) / sum(asked)
    recorded = [row.cached_tokens for row in rows if row.cached_tokens is not None]
    if len(recorded) < len(rows):
        yield Beside("prompt tokens found", "share", None, simulated)
        return
    low, high = ratio_interval(found, recorded, asked)
    yield Beside("prompt tokens found", "share", sum(recorded) / sum(asked), simulated, low, high)


def _curves(compared: RunComparison) -> Iterator[Beside]:
    """Means over the ticks of the engine's log."""
    curves = compared.curves
    for name, (words, unit) in _CURVES.items():
        if curves is not None and name in curves.recorded:
            real, simulated = (
                float(log[name].mean()) for log in (curves.recorded, curves.simulated)
            )
            yield Beside(words, unit, real, simulated)
    yield Beside("preemptions", "count", None, compared.replay.preemptions)


def _latencies(compared: RunComparison) -> Iterator[Beside]:
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        if name not in compared.recorded:
            continue
        words, unit = _TRIAL[name]
        low, high = compared.intervals.get(name, (None, None))
        real, simulated = compared.recorded[name]["mean"], compared.simulated[name]["mean"]
        yield Beside(words, unit, real, simulated, low, high)
    spans = [log["makespan_s"]["mean"] for log in (compared.recorded, compared.simulated)]
    yield Beside("makespan", "s", *spans)
