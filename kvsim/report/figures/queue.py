"""How long requests waited before a step first took them in."""

from typing import ClassVar

from kvsim.report.latency import queue_s
from kvsim.report.waits import Waits, WaitsOf


class Queue(Waits):
    """How long requests waited before a step first took them in."""

    title: ClassVar[str] = "Waiting in the queue"
    note: ClassVar[str] = (
        "From arrival to the first step that took the request in; the height of the curve is the "
        "share of requests that waited no longer."
    )
    mark: ClassVar[str] = "queue_s"
    waits_s: ClassVar[WaitsOf] = staticmethod(queue_s)
