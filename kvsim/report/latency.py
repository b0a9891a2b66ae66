"""Latencies of finished requests in seconds, computed from a run's table of requests."""

import numpy as np
import pandas as pd

from kvsim.plumbing.units import PS_PER_S
from kvsim.results import latency
from kvsim.results.latency import Floats, Moments


def finished(requests: pd.DataFrame) -> pd.DataFrame:
    """The rows of finished requests."""
    return requests.loc[requests["status"] == "finished"]


def queue_s(requests: pd.DataFrame) -> Floats:
    """Queueing time in s: arrival to the first step that schedules the request."""
    done = finished(requests)
    return latency.queue(_column(done, "arrival_ps"), _column(done, "scheduled_ps")) / PS_PER_S


def ttft_s(requests: pd.DataFrame) -> Floats:
    """Time to first token in s."""
    done = finished(requests)
    return latency.ttft(_column(done, "arrival_ps"), _column(done, "first_token_ps")) / PS_PER_S


def e2e_s(requests: pd.DataFrame) -> Floats:
    """End-to-end latency in s: arrival to the last output token."""
    done = finished(requests)
    return latency.e2e(_column(done, "arrival_ps"), _column(done, "finish_ps")) / PS_PER_S


def tpot_s(requests: pd.DataFrame) -> Floats:
    """Time per output token after the first in s, for requests with at least two output tokens."""
    done = finished(requests)
    moments = (_column(done, name) for name in ("first_token_ps", "finish_ps", "output_tokens"))
    return latency.tpot(*moments) / PS_PER_S


def _column(requests: pd.DataFrame, name: str) -> Moments:
    """A column as integers: the small difference of two large floats would be inexact."""
    column: Moments = requests[name].to_numpy(np.int64)
    return column
