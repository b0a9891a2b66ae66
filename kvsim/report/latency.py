"""The waits of finished requests, in seconds, out of a run's table of requests."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kvsim.plumbing.units import PS_PER_S

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


def finished(requests: "pd.DataFrame") -> "pd.DataFrame":
    """The rows of requests that finished."""
    return requests.loc[requests["status"] == "finished"]


def queue_s(requests: "pd.DataFrame") -> Floats:
    """From arrival to the first step that took the request in."""
    return _between(requests, "arrival_ps", "scheduled_ps")


def ttft_s(requests: "pd.DataFrame") -> Floats:
    """Time to first token: from arrival to the first output token."""
    return _between(requests, "arrival_ps", "first_token_ps")


def e2e_s(requests: "pd.DataFrame") -> Floats:
    """End to end: from arrival to the last output token."""
    return _between(requests, "arrival_ps", "finish_ps")


def tpot_s(requests: "pd.DataFrame") -> Floats:
    """Time per output token after the first, of requests with more than one."""
    longer = requests.loc[requests["output_tokens"] > 1]
    gaps = longer["output_tokens"].loc[longer["status"] == "finished"].to_numpy() - 1
    per_token: Floats = _between(longer, "first_token_ps", "finish_ps") / gaps
    return per_token


def _between(requests: "pd.DataFrame", begin: str, end: str) -> Floats:
    done = finished(requests)
    # Subtracted as integers: two large floats would lose the small difference.
    waits: Floats = (done[end] - done[begin]).to_numpy(np.int64) / PS_PER_S
    return waits
