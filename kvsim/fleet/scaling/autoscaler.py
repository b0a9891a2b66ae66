"""Number of replicas that an autoscaler wants, evaluation by evaluation (Kubernetes'
HorizontalPodAutoscaler v2).
"""

from collections import deque
from math import ceil

from kvsim.fleet.scaling.options import AutoscalerOptions, FleetState
from kvsim.plumbing.units import PS_PER_S

MOST_ADDED = 4  # at a look, or as many as there are


class Autoscaler:
    """A horizontal autoscaler with memory of earlier results. replicas: number at the start, which
    counts as an earlier result.
    """

    def __init__(self, options: AutoscalerOptions, replicas: int) -> None:
        self._options = options
        self._down_ps = round(options.scale_down_after_s * PS_PER_S)
        self._wanted: deque[tuple[int, int]] = deque([(0, replicas)])

    def wanted(self, state: FleetState, replicas: int, now_ps: int) -> int:
        """Number of replicas wanted now. replicas: present number, including those starting up."""
        options, wanted = self._options, self._wanted
        needed = options.total(state) / options.target
        near = abs(needed - replicas) <= options.tolerance * replicas
        wish = replicas if near else ceil(needed)
        wish = min(max(wish, options.min_replicas), options.max_replicas)
        wanted.append((now_ps, wish))
        while wanted[0][0] < now_ps - self._down_ps:
            wanted.popleft()
        if wish >= replicas:
            return min(wish, max(2 * replicas, replicas + MOST_ADDED))
        return min(replicas, max(number for _, number in wanted))
