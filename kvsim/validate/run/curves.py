"""The simulated engine's log beside the recorded one, tick by tick.

A row at t shows the last record an engine made before t on the logger's clock, which may be ahead
of the engine's.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from kvsim.engine.record import EngineRecord
from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.units import PS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SATURATED_USAGE = 0.95  # a pool this full for the first time has been filled
_STEP_S = 0.01  # resolution of the clocks' offset
PHASES = ("filling", "saturated", "draining")


class Curves(NamedTuple):
    """Both logs at the recorded ticks t (s): running, waiting, kv_cache_usage (fractions).

    clock_ahead_s: by how much the logger's clock is ahead of the requests'.
    """

    t: "Floats"
    recorded: "dict[str, Floats]"
    simulated: "dict[str, Floats]"
    clock_ahead_s: float

    def phases(self) -> "dict[str, NDArray[np.bool_]]":
        """Which ticks lie in which phase of the recorded run.

        filling: until the pool is SATURATED_USAGE full for the first time; draining: after the last
        tick with a waiting request; saturated: between. A pool never full is filled to the last
        wait.
        """
        import numpy as np

        full = np.flatnonzero(self.recorded["kv_cache_usage"] >= SATURATED_USAGE)
        waits = np.flatnonzero(self.recorded["waiting"] > 0)
        drained = int(waits[-1]) + 1 if len(waits) else 0
        filled = int(full[0]) if len(full) else drained
        index = np.arange(len(self.t))
        draining = index >= max(drained, filled)
        return {
            "filling": index < filled,
            "saturated": (index >= filled) & ~draining,
            "draining": draining,
        }

    def summary(self) -> dict[str, Any]:
        """Mean absolute errors over all ticks, and by phase with the mean usage on both sides."""
        import numpy as np

        whole: dict[str, Any] = self._errors(np.ones(len(self.t), dtype=bool))
        whole["phases"] = {
            name: {"ticks": int(ticks.sum())} | (self._errors(ticks) if ticks.any() else {})
            for name, ticks in self.phases().items()
        }
        return whole

    def _errors(self, ticks: "NDArray[np.bool_]") -> dict[str, Any]:
        import numpy as np

        both = (self.simulated, self.recorded)
        errors: dict[str, Any] = {
            f"{name}_mae": float(np.abs(self.simulated[name] - self.recorded[name])[ticks].mean())
            for name in self.recorded
        }
        simulated, recorded = (float(log["kv_cache_usage"][ticks].mean()) for log in both)
        errors["kv_cache_usage_mean"] = {"simulated": simulated, "recorded": recorded}
        return errors


def curves(run: ObservedRun, records: tuple[EngineRecord, ...]) -> Curves:
    """Sample the simulated records at the recorded ticks."""
    import numpy as np

    ahead_s = run.meta.clock_ahead_s
    if ahead_s is None:
        ahead_s = clock_ahead(run)
    t = np.array([tick.t for tick in run.ticks])
    made = np.array([record.time_ps / PS_PER_S for record in records])
    index = np.searchsorted(made, t - ahead_s, side="left")
    nothing = EngineRecord(0, 0, 0, 0.0)
    last = [(nothing, *records)[at] for at in index]
    return Curves(
        t,
        {
            "running": np.array([float(tick.running) for tick in run.ticks]),
            "waiting": np.array([float(tick.waiting) for tick in run.ticks]),
            "kv_cache_usage": np.array([tick.kv_cache_pct / 100 for tick in run.ticks]),
        },
        {
            "running": np.array([float(record.running) for record in last]),
            "waiting": np.array([float(record.waiting) for record in last]),
            "kv_cache_usage": np.array([record.kv_cache_usage for record in last]),
        },
        ahead_s,
    )


def clock_ahead(run: ObservedRun) -> float:
    """By how much the logger's clock is ahead (s), from the recording alone.

    Running plus waiting is what has been taken from the input queue and not yet finished, which the
    requests' own times tell: the offset at which the two agree best, up to a tick either way (the
    middle, where several do).
    """
    import numpy as np

    taken = np.sort([row.arrival_s if row.queued_s is None else row.queued_s for row in run.rows])
    gone = np.sort([row.last_token_s for row in run.rows])
    t = np.array([tick.t for tick in run.ticks])
    logged = np.array([tick.running + tick.waiting for tick in run.ticks])
    reach = round(run.meta.tick_seconds / _STEP_S)
    offsets = np.arange(-reach, reach + 1) * _STEP_S
    misses = [
        np.abs(np.searchsorted(taken, t - at) - np.searchsorted(gone, t - at) - logged).sum()
        for at in offsets
    ]
    return round(float(np.median(offsets[misses == np.min(misses)])), 3)
