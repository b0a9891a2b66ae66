"""Number of replicas that an autoscaler wants, evaluation by evaluation (Kubernetes'
HorizontalPodAutoscaler v2).
"""

from collections import deque
from math import ceil

from kvsim.fleet.scaling.options import AutoscalerOptions, FleetState
from kvsim.plumbing.units import PS_PER_S


class Autoscaler:
    """A horizontal autoscaler with memory of earlier results. replicas: number at the start, which
    counts as an earlier result.
    """

    def __init__(self, options: AutoscalerOptions, replicas: int) -> None:
        self._options = options
        self._down_ps = round(options.scale_down_after_s * PS_PER_S)
        period_s = options.scale_up_period_s or options.interval_s
        self._up_ps = round(period_s * PS_PER_S)
        self._added: deque[tuple[int, int]] = deque()  # times and numbers of replicas
        self._wanted: deque[tuple[int, int]] = deque([(0, replicas)])

    def wanted(self, state: FleetState, replicas: int, now_ps: int) -> int:
        """Number of replicas wanted now. replicas: present number, including those starting up."""
        options, wanted = self._options, self._wanted
        wish = max(self._wish(needed, replicas) for needed in options.needed(state))
        wish = min(max(wish, options.min_replicas), options.max_replicas)
        wanted.append((now_ps, wish))
        while wanted[0][0] < now_ps - self._down_ps:
            wanted.popleft()
        if wish < replicas:
            return min(replicas, max(number for _, number in wanted))
        most = min(wish, max(replicas, self._most(replicas, now_ps)))
        if most > replicas:
            self._added.append((now_ps, most - replicas))
        return most

    def _wish(self, needed: float, replicas: int) -> int:
        """Replicas for one target: `needed` rounded up, or the present number if `needed` is within
        the tolerance of it.
        """
        near = abs(needed - replicas) <= self._options.tolerance * replicas
        return replicas if near else ceil(needed)

    def _most(self, replicas: int, now_ps: int) -> int:
        """Largest number of replicas allowed now by the scale-up limits, given those added in the
        last period.
        """
        options, added = self._options, self._added
        while added and added[0][0] <= now_ps - self._up_ps:
            added.popleft()
        before = replicas - sum(number for _, number in added)
        share = ceil(before * (1 + options.scale_up_percent / 100))
        return max(before + options.scale_up_pods, share)
