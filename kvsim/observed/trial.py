"""A published run of which only settings, requests and means were recorded.

A folder of `kvsim.observed.folder` has the times of every request. Published benchmarks often have
only means, and were driven by clients of several kinds.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from kvsim.observed.vllm_meta import VllmMeta
from kvsim.request import Request
from kvsim.results import latency
from kvsim.results.latency import Floats

FIGURES = (
    *("ttft_s", "tpot_s", "e2e_s", "makespan_s"),
    *("running", "resident_tokens", "kv_cache_usage", "preemptions"),
)


class Trial(NamedTuple):
    """A published run: its settings, its requests with the times at which the client meant to send
    each, and recorded means.

    max_in_flight is the client's limit of concurrent requests; None: no limit. Latencies count from
    when a request was really sent.

    recorded has those of FIGURES that were published. They are mean latencies, the makespan, the
    mean number of running sequences and preemptions. `resident_tokens` is the mean number of tokens
    of decoding sequences, `kv_cache_usage` the mean fraction of the KV pool in use.

    counted lists the indices of the requests that these values cover; None: all. assumed has a
    sentence for each setting that was not recorded. beyond says which feature of the run no
    simulated engine has; "": none.
    """

    name: str
    meta: VllmMeta
    requests: tuple[Request, ...]
    recorded: Mapping[str, float]
    max_in_flight: int | None = None
    counted: tuple[int, ...] | None = None
    assumed: tuple[str, ...] = ()
    beyond: str = ""


class ServedTimes(NamedTuple):
    """Arrays of n requests: arrival, first and last token in seconds, and lengths in tokens."""

    arrival: Floats
    first_token: Floats
    last_token: Floats
    prompt_tokens: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    output_tokens: "np.ndarray[tuple[int], np.dtype[np.int64]]"

    def figures(self) -> dict[str, float]:
        """The values of FIGURES that can be computed from these times alone."""
        decoding = self.last_token - self.first_token
        span = float(self.last_token.max() - self.arrival.min())
        gaps = latency.tpot(self.first_token, self.last_token, self.output_tokens)
        held = (self.prompt_tokens + self.output_tokens / 2) * decoding
        found = {
            "ttft_s": float(latency.ttft(self.arrival, self.first_token).mean()),
            "e2e_s": float(latency.e2e(self.arrival, self.last_token).mean()),
            "makespan_s": span,
        }
        if span > 0:
            found["resident_tokens"] = float(held.sum() / span)
        return found | ({"tpot_s": float(gaps.mean())} if len(gaps) else {})
