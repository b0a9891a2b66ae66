"""The records of a run as columns of tables."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvsim.memory.parts import PARTS
from kvsim.results.recorder import Recorder
from kvsim.results.series import SERIES_COLUMNS
from kvsim.results.tier_hits import NO_HITS

REQUEST_COLUMNS = (
    *("id", "session", "status", "reason"),
    *("arrival_ps", "scheduled_ps", "first_token_ps", "finish_ps"),
    *("prompt_tokens", "output_tokens", "cached_tokens", "preemptions"),
)
TIER_COLUMNS = (
    "host_cached_tokens",
    "storage_cached_tokens",
    "load_wait_ps",
    "recompute_ps",
)


Numbers = NDArray[np.int64]
Columns = dict[str, Any]  # name -> (n,) array, or list of n


def request_columns(recorder: Recorder) -> Columns:
    """One row for each sequence (a request with n samples has n), refused requests included, sorted
    by arrival.

    Times are ps from the stream's start, -1 for an event that never happened.
    """
    done, refused = recorder.finished, recorder.rejected
    num_done, num_refused = len(done), len(refused)

    def numbers(name: str, of_refused: list[int] | None = None, otherwise: int = -1) -> Numbers:
        rest = [otherwise] * num_refused if of_refused is None else of_refused
        return np.concatenate([done.column(name), np.array(rest, dtype=np.int64)])

    arrival = numbers("arrival_ps", [now_ps for _, now_ps, _ in refused])
    order = np.argsort(arrival, kind="stable")
    finish = np.append(np.frombuffer(recorder.finish_ps, dtype=np.int64), [-1] * num_refused)
    requests = [*done.requests, *(request for request, _, _ in refused)]
    ids = [*done.ids, *(request.id for request, _, _ in refused)]
    reasons = [reason for _, _, reason in refused]
    columns: Columns = {
        "id": [ids[i] for i in order],
        "session": [requests[i].session for i in order],
        "status": ["finished" if i < num_done else "rejected" for i in order],
        "reason": [None if i < num_done else reasons[i - num_done] for i in order],
        "arrival_ps": arrival[order],
        "scheduled_ps": numbers("first_scheduled_ps")[order],
        "first_token_ps": numbers("first_token_ps")[order],
        "finish_ps": finish.astype(np.int64)[order],
        "prompt_tokens": numbers("prompt_tokens", [r.prompt_tokens for r, _, _ in refused])[order],
        "output_tokens": numbers("output_tokens", [r.output_tokens for r, _, _ in refused])[order],
        "cached_tokens": numbers("hit_tokens", otherwise=0)[order],
        "preemptions": numbers("num_preemptions", otherwise=0)[order],
    }
    return columns | _tier_columns(recorder, columns["id"])


def _tier_columns(recorder: Recorder, ids: list[str]) -> Columns:
    """Columns for tokens of `cached_tokens` loaded from host memory and from the tier after it, and
    for the times of the loads (`kvsim.results.tier_hits`).

    None for a run without tiers.
    """
    if recorder.tier_hits is None:
        return {}
    found = [recorder.tier_hits.get(name, NO_HITS) for name in ids]
    return {
        "host_cached_tokens": np.array([h.tokens - h.storage_tokens for h in found], np.int64),
        "storage_cached_tokens": np.array([h.storage_tokens for h in found], np.int64),
        "load_wait_ps": np.array([h.wait_ps for h in found], np.int64),
        "recompute_ps": np.array([h.recompute_ps for h in found], np.int64),
    }


def memory_columns(recorder: Recorder) -> Columns:
    """The ledger over time, one row for each run of equal steps.

    It has the ten classes in bytes in the first step (`CLASS_bytes`) and in the last
    (`CLASS_end_bytes`). Parts of them that ever occur are given for the first step (see
    kvsim.memory.parts).
    """
    rows = np.frombuffer(recorder.series, dtype=np.int64).reshape(-1, len(SERIES_COLUMNS))
    parts: Columns = {}
    for name in PARTS:
        if name in recorder.part_series:
            held = np.frombuffer(recorder.part_series[name], dtype=np.int64)
            parts[f"{name}_bytes"] = np.pad(held, (0, len(rows) - len(held)))
    return dict(zip(SERIES_COLUMNS, rows.T, strict=True)) | parts


COLUMNS = {"requests": request_columns, "memory": memory_columns}
