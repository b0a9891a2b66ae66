"""The link between device and host memory, with a queue of copies.

It serves one copy after the other. Each copy's end is computed when it is queued, so engines of one
simulation may share the link.
"""

from kvsim.plumbing.units import PS_PER_S, ceil_div


class Link:
    """A link that copies in one direction at a time, first come, first served.

    latency_ps: time before each copy moves. bytes_per_s: rate while it moves.
    """

    def __init__(self, bytes_per_s: int, latency_ps: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._latency_ps = latency_ps
        self._free_ps = 0

    def copy_ps(self, at_ps: int, num_bytes: int) -> int:
        """Queue a copy at `at_ps`; returns how long it takes in ps, including its wait in the
        queue.
        """
        begin_ps = max(at_ps, self._free_ps)
        copying_ps = ceil_div(num_bytes * PS_PER_S, self._bytes_per_s)
        self._free_ps = begin_ps + self._latency_ps + copying_ps
        return self._free_ps - at_ps
