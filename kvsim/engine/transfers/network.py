"""The network between engines: each engine has one port, which sends or receives one prompt at a
time.
"""

from collections import defaultdict
from collections.abc import Hashable

from kvsim.engine.copy_log import CopyLog
from kvsim.plumbing.units import PS_PER_S, ceil_div


class Network:
    """latency_ps: time before each sending. bytes_per_s: rate of a port while it sends or receives.

    num_moves: sendings so far. num_bytes: bytes sent. busy_ps: total duration of sendings.
    waited_ps: total time that sendings waited for a port. log: each sending.
    """

    def __init__(self, latency_ps: int, bytes_per_s: int) -> None:
        self._latency_ps, self._bytes_per_s = latency_ps, bytes_per_s
        self._free_ps: defaultdict[Hashable, int] = defaultdict(int)
        self.num_moves = self.num_bytes = self.busy_ps = self.waited_ps = 0
        self.log = CopyLog()

    def send(
        self, at_ps: int, num_bytes: int, sender: Hashable, receiver: Hashable
    ) -> tuple[int, int]:
        """Queue a sending at both ports, which may begin at at_ps; returns its start and end
        in ps.
        """
        start_ps = max(at_ps, self._free_ps[sender], self._free_ps[receiver])
        lasts_ps = self._latency_ps + ceil_div(num_bytes * PS_PER_S, self._bytes_per_s)
        end_ps = self._free_ps[sender] = self._free_ps[receiver] = start_ps + lasts_ps
        self.num_moves += 1
        self.num_bytes += num_bytes
        self.busy_ps += lasts_ps
        self.waited_ps += start_ps - at_ps
        self.log.add(at_ps, start_ps, end_ps, num_bytes)
        return start_ps, end_ps
