"""The link between device and host, which copies queue for.

It serves one copy after the other; its time is a closed form, so that engines in one simulation may
share it.
"""

from kvsim.plumbing.units import PS_PER_S, ceil_div


class Link:
    """One way at a time: first come, first served.

    latency_ps: before each copy. bytes_per_s: while it lasts.
    """

    def __init__(self, bytes_per_s: int, latency_ps: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._latency_ps = latency_ps
        self._free_ps = 0

    def copy_ps(self, at_ps: int, num_bytes: int) -> int:
        """Duration in ps of a copy asked for at `at_ps`, including the wait in the queue.

        The copy is queued.
        """
        begin_ps = max(at_ps, self._free_ps)
        copying_ps = ceil_div(num_bytes * PS_PER_S, self._bytes_per_s)
        self._free_ps = begin_ps + self._latency_ps + copying_ps
        return self._free_ps - at_ps
