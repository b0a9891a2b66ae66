"""The simulated engine's log next to the recorded one, tick by tick.

A row at t shows the last record an engine made before t on the logger's clock, which may be ahead
of the engine's.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.engine.record import EngineRecord
from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.units import PS_PER_S

Floats = NDArray[np.float64]


SATURATED_USAGE = 0.95  # a pool this full for the first time has been filled
_STEP_S = 0.01  # resolution of the clocks' offset
SERIES = ("running", "waiting", "kv_cache_usage")


class Curves(NamedTuple):
    """Both logs at the recorded ticks t (s): those of SERIES that were recorded.

    Usage is in fractions, and only of a pool of known size.

    clock_ahead_s: by how much the logger's clock is ahead of the requests'.
    """

    t: Floats
    recorded: dict[str, Floats]
    simulated: dict[str, Floats]
    clock_ahead_s: float

    def phases(self) -> dict[str, NDArray[np.bool_]]:
        """Masks of the ticks in each phase of the recorded run.

        filling: until the pool is SATURATED_USAGE full for the first time; draining: after the last
        tick with a waiting request; saturated: between. If the pool is never full, `filling` lasts
        until the last tick with a waiting request. If the pool was not recorded: queueing until the
        last wait, draining after it. If no wait was recorded or seen either, one phase, the whole
        run.
        """
        index = np.arange(len(self.t))
        waits = np.flatnonzero(self.recorded.get("waiting", np.zeros(0)) > 0)
        drained = int(waits[-1]) + 1 if len(waits) else 0
        if "kv_cache_usage" not in self.recorded:
            if not drained:
                return {"whole run": index >= 0}
            return {"queueing": index < drained, "draining": index >= drained}
        full = np.flatnonzero(self.recorded["kv_cache_usage"] >= SATURATED_USAGE)
        filled = int(full[0]) if len(full) else drained
        draining = index >= max(drained, filled)
        return {
            "filling": index < filled,
            "saturated": (index >= filled) & ~draining,
            "draining": draining,
        }

    def summary(self) -> dict[str, Any]:
        """Mean absolute errors over all ticks, and by phase with the mean usage on both sides."""
        whole: dict[str, Any] = self._errors(np.ones(len(self.t), dtype=bool))
        whole["phases"] = {
            name: {"ticks": int(ticks.sum())} | (self._errors(ticks) if ticks.any() else {})
            for name, ticks in self.phases().items()
        }
        return whole

    def _errors(self, ticks: NDArray[np.bool_]) -> dict[str, Any]:
        errors: dict[str, Any] = {
            f"{name}_mae": float(np.abs(self.simulated[name] - recorded)[ticks].mean())
            for name, recorded in self.recorded.items()
        }
        if "kv_cache_usage" in self.recorded:
            simulated, recorded = (
                float(log["kv_cache_usage"][ticks].mean())
                for log in (self.simulated, self.recorded)
            )
            errors["kv_cache_usage_mean"] = {"simulated": simulated, "recorded": recorded}
        return errors


def curves(run: ObservedRun, records: tuple[EngineRecord, ...]) -> Curves | None:
    """Sample the simulated records at the recorded ticks; None where no log was kept."""
    logged = _recorded(run)
    if not logged:
        return None
    ahead_s = run.meta.clock_ahead_s
    if ahead_s is None:
        ahead_s = clock_ahead(run)
    t = np.array([tick.t for tick in run.ticks])
    made = np.array([record.time_ps / PS_PER_S for record in records])
    index = np.searchsorted(made, t - ahead_s, side="left")
    nothing = EngineRecord(0, 0, 0, 0.0)
    last = [(nothing, *records)[at] for at in index]
    simulated = {
        name: np.array([float(getattr(record, name)) for record in last]) for name in logged
    }
    return Curves(t, logged, simulated, ahead_s)


def _recorded(run: ObservedRun) -> dict[str, Floats]:
    """The columns of SERIES that every tick has."""
    columns: dict[str, list[float | None]] = {
        "running": [tick.running for tick in run.ticks],
        "waiting": [tick.waiting for tick in run.ticks],
    }
    if run.meta.pool_recorded:
        columns["kv_cache_usage"] = [
            None if tick.kv_cache_pct is None else tick.kv_cache_pct / 100 for tick in run.ticks
        ]
    return {
        name: np.array(column, dtype=float)
        for name, column in columns.items()
        if column and None not in column
    }


def clock_ahead(run: ObservedRun) -> float:
    """Seconds by which the logger's clock is ahead, from the recording alone.

    Running plus waiting are the requests taken from the input queue and not yet finished, which the
    requests' own times give too. The result is the offset at which the two agree best, up to a tick
    either way (the middle, if several do). 0 if the log does not have both.
    """
    columns = _recorded(run)
    if not {"running", "waiting"} <= columns.keys():
        return 0.0
    taken = np.sort([row.arrival_s if row.queued_s is None else row.queued_s for row in run.rows])
    gone = np.sort([row.last_token_s for row in run.rows])
    t = np.array([tick.t for tick in run.ticks])
    logged = columns["running"] + columns["waiting"]
    reach = round(run.meta.tick_seconds / _STEP_S)
    offsets = np.arange(-reach, reach + 1) * _STEP_S
    misses = [
        np.abs(np.searchsorted(taken, t - at) - np.searchsorted(gone, t - at) - logged).sum()
        for at in offsets
    ]
    return round(float(np.median(offsets[misses == np.min(misses)])), 3)
