"""Distributions of requests' latencies, one figure per latency."""

from typing import ClassVar

from kvsim.report.latency import e2e_s, queue_s, tpot_s, ttft_s
from kvsim.report.waits import Waits, WaitsOf


class Queue(Waits):
    """The distribution of the queueing time, until a step first schedules the request."""

    title: ClassVar[str] = "Waiting in the queue"
    note: ClassVar[str] = (
        "From arrival to the first step that took the request in; the height of the curve is the "
        "share of requests that waited no longer."
    )
    mark: ClassVar[str] = "queue_s"
    waits_s: ClassVar[WaitsOf] = staticmethod(queue_s)


class TimeToFirstToken(Waits):
    """The distribution of the time to first token."""

    title: ClassVar[str] = "Time to first token"
    note: ClassVar[str] = "Arrival to the first output token: the wait a user notices first."
    mark: ClassVar[str] = "ttft_s"
    waits_s: ClassVar[WaitsOf] = staticmethod(ttft_s)


class TimePerOutputToken(Waits):
    """The distribution of the time per output token."""

    title: ClassVar[str] = "Time per output token"
    note: ClassVar[str] = (
        "The mean gap between the tokens of each request after its first: how fast the text flows."
    )
    nothing: ClassVar[str] = "No request with more than one output token finished."
    mark: ClassVar[str] = "tpot_s"
    waits_s: ClassVar[WaitsOf] = staticmethod(tpot_s)


class EndToEnd(Waits):
    """The distribution of the time from arrival to the last token."""

    title: ClassVar[str] = "End to end"
    note: ClassVar[str] = "Arrival to the last output token."
    mark: ClassVar[str] = "e2e_s"
    waits_s: ClassVar[WaitsOf] = staticmethod(e2e_s)
