"""The list of requests on the page, which a reader can search, sort and mark."""

import json
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from kvsim.plumbing.units import PS_PER_S
from kvsim.report.packing import packed, packed_floats, packed_text
from kvsim.results.result import Result

MOST_ROWS = 60_000  # of all runs together
LEAST_ROWS = 1_000  # of each
SLOWEST = 0.2  # of the rows of a list that is cut


class RequestList(NamedTuple):
    """data: the list for the page's scripts. places: for each run, row number by request id.
    left_out: number of requests that are not on the page.
    """

    data: dict[str, Any]
    places: tuple[dict[str, int], ...]
    left_out: int


def request_list(result: Result) -> RequestList:
    """All requests; if they are too many, the slowest and an even sample of the others."""
    runs, places, left_out = [], [], 0
    most = max(MOST_ROWS // max(len(result.runs), 1), LEAST_ROWS)
    for run in result.runs:
        rows = _chosen(run.requests, most)
        left_out += len(run.requests) - len(rows)
        ids = [str(name) for name in rows["id"]]
        places.append({name: place for place, name in enumerate(ids)})
        listed = packed_text(json.dumps(ids, ensure_ascii=False))
        runs.append({"ids": listed, **_columns(rows), "num": len(ids)})
    for run_data in runs[1:]:
        for name, text in runs[0].items():
            if isinstance(text, str) and run_data[name] == text:
                run_data[name] = None  # as in the first run
    return RequestList({"runs": runs}, tuple(places), left_out)


def _columns(rows: pd.DataFrame) -> dict[str, Any]:
    """Columns of the list: times in seconds, -1 if the event never happened; counts; reasons of
    refusals.
    """
    times = {
        name: packed_floats(np.where(rows[f"{name}_ps"] < 0, -1.0, rows[f"{name}_ps"] / PS_PER_S))
        for name in ("arrival", "scheduled", "first_token", "finish")
    }
    counts = {
        name: packed(rows[name].to_numpy(np.int64))
        for name in ("prompt_tokens", "output_tokens", "cached_tokens", "preemptions")
    }
    refused = rows["status"] != "finished"
    reasons = {
        int(place): str(reason)
        for place, reason in zip(
            np.flatnonzero(refused), rows.loc[refused, "reason"].astype(object), strict=True
        )
    }
    return {**times, **counts, "reasons": reasons}


def _chosen(requests: pd.DataFrame, most: int) -> pd.DataFrame:
    if len(requests) <= most:
        return requests.reset_index(drop=True)
    took = (requests["finish_ps"] - requests["arrival_ps"]).to_numpy()
    slowest = np.argsort(took, kind="stable")[-int(most * SLOWEST) :]
    even = np.linspace(0, len(requests) - 1, most - len(slowest)).round().astype(int)
    return requests.iloc[np.union1d(slowest, even)].reset_index(drop=True)
