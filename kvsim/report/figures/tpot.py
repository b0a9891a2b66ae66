"""The distribution of the time per output token."""

from typing import ClassVar

from kvsim.report.latency import tpot_s
from kvsim.report.waits import Waits, WaitsOf


class TimePerOutputToken(Waits):
    """The distribution of the time per output token."""

    title: ClassVar[str] = "Time per output token"
    note: ClassVar[str] = (
        "The mean gap between the tokens of each request after its first: how fast the text flows."
    )
    nothing: ClassVar[str] = "No request with more than one output token finished."
    mark: ClassVar[str] = "tpot_s"
    waits_s: ClassVar[WaitsOf] = staticmethod(tpot_s)
