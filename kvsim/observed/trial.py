"""A run of which only some figures were recorded: settings, requests, means.

Where a folder of `kvsim.observed.folder` has every request's times, published benchmarks often have
means alone, and clients of their own kind.
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
    """requests: when the client meant to send each.

    max_in_flight: most requests on their way; it sends none beyond them; None: it never waits.
    Latencies count from when a request was really sent.

    recorded: of FIGURES those that are known. They are means of the latencies, the makespan,
    sequences running on average, and tokens of decoding sequences on average (`resident_tokens`).
    Also the share of the pool taken on average, and preemptions. counted: the requests that these
    are of, by index; None: all. assumed: what was not recorded, in words. beyond: what of the run
    no simulated engine has; "": nothing.
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
    """When n requests came and were answered, in seconds, and their lengths."""

    arrival: Floats
    first_token: Floats
    last_token: Floats
    prompt_tokens: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    output_tokens: "np.ndarray[tuple[int], np.dtype[np.int64]]"

    def figures(self) -> dict[str, float]:
        """The values of FIGURES that follow from these times alone."""
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
