"""The simulated engine's log next to the recorded one, at the same times.

A row at t has the engine's last record before t on the logger's clock, which may be ahead of the
engine's clock.
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
    """Recorded and simulated log values at the recorded times t (s), for those of SERIES that were
    recorded.

    kv_cache_usage is a fraction of the pool, and included only if the pool's size is known.
    clock_ahead_s is how far the logger's clock is ahead of the requests' clock.
    """

    t: Floats
    recorded: dict[str, Floats]
    simulated: dict[str, Floats]
    clock_ahead_s: float

    def phases(self) -> dict[str, NDArray[np.bool_]]:
        """Boolean masks over t, one for each phase of the recorded run.

        `filling` ends when the pool is first SATURATED_USAGE full. `draining` begins after the last
        row with a waiting request. `saturated` is in between. If the pool is never that full,
        `filling` lasts until the last row with a waiting request.

        Without a recorded pool there are `queueing`, until the last row with a waiting request, and
        `draining`. If no request is seen waiting either, the only phase is `whole run`.
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
        """Mean absolute errors over all rows and by phase, and the mean KV usage of both logs."""
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
    """Sample the simulated log at the recorded times; None if no log was recorded."""
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
    """The recorded columns of SERIES without missing values."""
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
    """Estimate from the recording alone how many seconds the logger's clock is ahead.

    The log's running + waiting counts requests taken from the input queue and not finished. The
    requests' own times give the same number. The result is the best-fitting offset within one tick,
    or the middle of several. 0 if the log lacks running or waiting.
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
