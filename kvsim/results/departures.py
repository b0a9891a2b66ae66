"""The moments of the sequences that finished, as arrays; their latencies, all or some."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.plumbing.units import PS_PER_S
from kvsim.results import latency
from kvsim.results.latency import QUANTILES
from kvsim.results.recorder import Recorder

Times = NDArray[np.int64]


class Departures(NamedTuple):
    """Of n finished sequences, (n,) each: when they arrived, were first scheduled, had their first
    and last token, in ps; and their output tokens.
    """

    arrival_ps: Times
    scheduled_ps: Times
    first_token_ps: Times
    finish_ps: Times
    output_tokens: Times

    @classmethod
    def of(cls, recorder: Recorder) -> "Departures":
        """Those that `recorder` wrote down."""
        done = recorder.finished
        return cls(
            done.column("arrival_ps"),
            done.column("first_scheduled_ps"),
            done.column("first_token_ps"),
            np.frombuffer(recorder.finish_ps, dtype=np.int64),
            done.column("output_tokens"),
        )

    def only(self, chosen: NDArray[np.bool_]) -> "Departures":
        """The sequences that `chosen` (n,) marks."""
        return Departures(*(column[chosen] for column in self))

    def latencies(self) -> dict[str, dict[str, float | None]]:
        """ttft_s, tpot_s, e2e_s and queue_s: mean and quantiles in seconds, None where undefined.

        As in `kvsim.results.latency`.
        """
        arrival, scheduled, first, finish, outputs = self
        return {
            "ttft_s": _spread(latency.ttft(arrival, first) / PS_PER_S),
            "tpot_s": _spread(latency.tpot(first, finish, outputs) / PS_PER_S),
            "e2e_s": _spread(latency.e2e(arrival, finish) / PS_PER_S),
            "queue_s": _spread(latency.queue(arrival, scheduled) / PS_PER_S),
        }


def _spread(values: NDArray[np.float64]) -> dict[str, float | None]:
    if not len(values):
        return dict.fromkeys(("mean", *QUANTILES))
    return {**latency.spread(values)}
