"""Consistent hashing: equal keys go to the same replica, and few keys move when a replica joins."""

from bisect import bisect
from hashlib import blake2b
from typing import Literal

from pydantic import Field

from kvsim.fleet.routers.options import FleetView, RouterOptions
from kvsim.fleet.routers.router import Decision, RoutedRequest, Router
from kvsim.fleet.views.content import cut


class ConsistentHash(RouterOptions):
    """Consistent hashing of conversations or prefixes. key: the conversation (a request without one
    uses its prefix), or the prompt's first prefix_tokens tokens. points: number of points of each
    replica on the hash ring.
    """

    key: Literal["session", "prefix"] = "session"
    prefix_tokens: int = Field(256, ge=1)
    points: int = Field(160, ge=1, le=10_000)

    def build(self, view: FleetView) -> "ConsistentHashRouter":
        return ConsistentHashRouter(self, view.num_replicas)


def _place(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")


class ConsistentHashRouter(Router):
    """A hash ring with points of each replica; a key belongs to the replica of the next point."""

    def __init__(self, options: ConsistentHash, num_replicas: int) -> None:
        super().__init__(num_replicas)
        self._options = options
        self._ring: list[tuple[int, int]] = []
        self._build()

    def _build(self) -> None:
        points = range(self._options.points)
        self._ring = sorted(
            (_place(f"{replica}#{point}"), replica) for replica in self.alive for point in points
        )

    def joined(self, replica: int) -> None:
        super().joined(replica)
        self._build()

    def gone(self, replica: int) -> None:
        super().gone(replica)
        self._build()

    def decide(self, request: RoutedRequest, now_ps: int) -> Decision:
        if self._options.key == "session" and request.session is not None:
            key, why = request.session, "session"
        else:
            key, why = repr(cut(request.content, self._options.prefix_tokens)[0]), "prefix"
        at = bisect(self._ring, (_place(key), -1)) % len(self._ring)
        return Decision(self._ring[at][1], why)
