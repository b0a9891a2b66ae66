"""From what the recorder wrote down to one entry of summary.json's `runs`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from kvsim.memory.ledger import CLASSES
from kvsim.plumbing.units import PS_PER_S
from kvsim.results import latency
from kvsim.results.gaps import Gaps
from kvsim.results.latency import QUANTILES
from kvsim.results.recorder import Recorder

Times = npt.NDArray[np.int64]


def latencies(recorder: Recorder) -> dict[str, dict[str, float | None]]:
    """ttft_s, tpot_s, itl_s, e2e_s and queue_s of the finished sequences; None where undefined.

    itl: all gaps between tokens; the others as in `kvsim.results.latency`.
    """
    done = recorder.finished
    finish = np.frombuffer(recorder.finish_ps, dtype=np.int64)
    arrival = _column(done, lambda seq: seq.arrival_ps)
    scheduled = _column(done, lambda seq: seq.first_scheduled_ps)
    first = _column(done, lambda seq: seq.first_token_ps)
    outputs = _column(done, lambda seq: seq.output_tokens)
    gaps = Gaps(recorder.gaps, recorder.late_gaps)
    return {
        "ttft_s": _spread(latency.ttft(arrival, first) / PS_PER_S),
        "tpot_s": _spread(latency.tpot(first, finish, outputs) / PS_PER_S),
        "itl_s": {
            "mean": gaps.mean_ps() / PS_PER_S if gaps.num else None,
            **{
                name: gaps.quantile_ps(share) / PS_PER_S if gaps.num else None
                for name, share in QUANTILES.items()
            },
        },
        "e2e_s": _spread(latency.e2e(arrival, finish) / PS_PER_S),
        "queue_s": _spread(latency.queue(arrival, scheduled) / PS_PER_S),
    }


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


def _column(rows: list[Any], value: Callable[[Any], int]) -> Times:
    return np.fromiter(map(value, rows), dtype=np.int64, count=len(rows))


def _spread(values: npt.NDArray[np.float64]) -> dict[str, float | None]:
    if not len(values):
        return dict.fromkeys(("mean", *QUANTILES))
    return {**latency.spread(values)}
