"""Requests of sessions that run already first."""

from collections import Counter

from kvsim.engine.schedulers.sglang.policies.policy import QueueView, SchedulePolicy
from kvsim.sequence import Sequence


class RoutingKey(SchedulePolicy):
    """Requests of the routing key that most running requests have first, then by key. A request's
    key is its session; clients send it as the header `x-smg-routing-key`.
    """

    def order(self, waiting: list[Sequence], view: QueueView) -> list[Sequence]:
        counts = Counter(seq.request.session for seq in view.running if seq.request.session)
        if not counts:
            return waiting

        def place(seq: Sequence) -> tuple[int, str]:
            key = seq.request.session or ""
            return -counts.get(key, 0), key

        return sorted(waiting, key=place)
