"""Schedule policy `routing-key`: requests of sessions with running requests first."""

from collections import Counter

from kvsim.engine.schedulers.sglang.policies.policy import QueueView, SchedulePolicy
from kvsim.sequence import Sequence


class RoutingKey(SchedulePolicy):
    """Requests with the routing key that most running requests have come first, then in the order
    of keys. A request's routing key is its session; a client sends it as the header
    `x-smg-routing-key`.
    """

    def order(self, waiting: list[Sequence], view: QueueView) -> list[Sequence]:
        counts = Counter(seq.request.session for seq in view.running if seq.request.session)
        if not counts:
            return waiting

        def place(seq: Sequence) -> tuple[int, str]:
            key = seq.request.session or ""
            return -counts.get(key, 0), key

        return sorted(waiting, key=place)
