"""Arrival processes of requests or conversations: one module each, registered here by one line
each.
"""

from kvsim.plumbing.registry import Registry
from kvsim.workload.arrivals.process import ArrivalOptions, Schedule

__all__ = ["ARRIVALS", "ArrivalOptions", "Schedule"]

ARRIVALS: Registry[ArrivalOptions] = Registry(
    "arrival process",
    {
        "poisson": "kvsim.workload.arrivals.poisson:Poisson",
        "gamma": "kvsim.workload.arrivals.gamma:Gamma",
        "weibull": "kvsim.workload.arrivals.weibull:Weibull",
        "constant": "kvsim.workload.arrivals.constant:Constant",
        "at-once": "kvsim.workload.arrivals.at_once:AtOnce",
        "gaps": "kvsim.workload.arrivals.gaps:DurationGaps",
        "on-off": "kvsim.workload.arrivals.on_off:OnOff",
        "piecewise": "kvsim.workload.arrivals.piecewise:Piecewise",
        "sinusoidal": "kvsim.workload.arrivals.sinusoidal:Sinusoidal",
        "closed-loop": "kvsim.workload.arrivals.closed_loop:ClosedLoop",
    },
)
