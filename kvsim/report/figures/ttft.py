"""The distribution of the time to first token."""

from typing import ClassVar

from kvsim.report.latency import ttft_s
from kvsim.report.waits import Waits, WaitsOf


class TimeToFirstToken(Waits):
    """The distribution of the time to first token."""

    title: ClassVar[str] = "Time to first token"
    note: ClassVar[str] = "Arrival to the first output token: the wait a user notices first."
    mark: ClassVar[str] = "ttft_s"
    waits_s: ClassVar[WaitsOf] = staticmethod(ttft_s)
