"""From what the recorder wrote down to one entry of summary.json's `runs`."""

from typing import Any

from kvsim.memory.ledger import CLASSES
from kvsim.plumbing.units import PS_PER_S
from kvsim.results.departures import Departures
from kvsim.results.gaps import Gaps
from kvsim.results.latency import QUANTILES
from kvsim.results.recorder import Recorder


def latencies(recorder: Recorder) -> dict[str, dict[str, float | None]]:
    """ttft_s, tpot_s, itl_s, e2e_s and queue_s of the finished sequences; None where undefined.

    itl: all gaps between tokens; the others as in `kvsim.results.latency`.
    """
    done = Departures.of(recorder).latencies()
    gaps = Gaps(recorder.gaps, recorder.late_gaps)
    itl = {
        "mean": gaps.mean_ps() / PS_PER_S if gaps.num else None,
        **{
            name: gaps.quantile_ps(share) / PS_PER_S if gaps.num else None
            for name, share in QUANTILES.items()
        },
    }
    return {"ttft_s": done["ttft_s"], "tpot_s": done["tpot_s"], "itl_s": itl,
            "e2e_s": done["e2e_s"], "queue_s": done["queue_s"]}  # fmt: skip


def memory(recorder: Recorder, token_bytes: int, *, shares: bool) -> dict[str, Any]:
    """The ledger's means as fractions of the capacity, and its peaks; what sharing saved, unless
    the allocator did not follow it (shares).
    """
    capacity = recorder.capacity_bytes
    return {
        "capacity_bytes": capacity,
        "capacity_tokens": capacity // token_bytes,
        "time_mean": _shares(recorder.time_sum, capacity * recorder.total_ps),
        "step_mean": _shares(recorder.step_sum, capacity * recorder.steps),
        "peak_used": recorder.peak_used / capacity,
        "peak_allocated": recorder.peak_allocated / capacity,
        "sharing_savings": _savings(recorder) if shares else None,
    }


def _savings(recorder: Recorder) -> float:
    """1 - physical / logical: of what sequences hold, counted for each, how much they share."""
    physical = sum(
        total
        for name, total in zip(CLASSES, recorder.time_sum, strict=True)
        if name in ("used", "reserved", "overprovisioned", "rounding")
    )
    logical = physical + recorder.saved_sum
    return recorder.saved_sum / logical if logical else 0.0


def _shares(sums: list[int], whole: int) -> dict[str, float]:
    """Each class's share; without any time all is idle, as the pool was."""
    if not whole:
        return {name: float(name == "idle") for name in CLASSES}
    return {name: total / whole for name, total in zip(CLASSES, sums, strict=True)}
