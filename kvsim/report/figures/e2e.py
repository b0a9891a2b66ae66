"""The distribution of the time from arrival to the last token."""

from typing import ClassVar

from kvsim.report.latency import e2e_s
from kvsim.report.waits import Waits, WaitsOf


class EndToEnd(Waits):
    """The distribution of the time from arrival to the last token."""

    title: ClassVar[str] = "End to end"
    note: ClassVar[str] = "Arrival to the last output token."
    mark: ClassVar[str] = "e2e_s"
    waits_s: ClassVar[WaitsOf] = staticmethod(e2e_s)
