"""Requests that arrive after another one has left: turns of a conversation, users of a closed loop.

A turn follows the answer to the turn before. In a closed loop the next conversation or request of
the list starts when any user is free, as in `vllm bench serve --max-concurrency`. So `after` of
such a start gives an order, and not the request that it waits for.
"""

from collections import Counter, deque
from collections.abc import Sequence

from kvsim.request import Request


class Followers:
    """The requests of a stream that follow another one, until that one has left."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._waiting: dict[str, list[Request]] = {}
        self._starts = deque(each for each in requests if each.any_user)
        self._ends = _ends(requests) if self._starts else frozenset[str]()
        self._open = Counter(each.group for each in requests if each.group is not None)
        for request in requests:
            if request.after is not None and not request.any_user:
                self._waiting.setdefault(request.after, []).append(request)

    def after(self, left: Request) -> list[Request]:
        """The requests that arrive `think_ps` after `left`, which has left."""
        found = self._of(left.id)
        if left.group is not None:
            self._open[left.group] -= 1
            if not self._open[left.group]:
                found += self._of(left.group)
        return found

    def _of(self, name: str) -> list[Request]:
        found = self._waiting.pop(name, [])
        if self._starts and name in self._ends:
            found.append(self._starts.popleft())
        return found


def _ends(requests: Sequence[Request]) -> frozenset[str]:
    """The requests and groups that conversations end with: the newest of each in stream order."""
    start: dict[str, int] = {}
    ends: dict[int, str] = {}
    for place, request in enumerate(requests):
        turn = request.after is not None and not request.any_user
        first = start[request.after] if turn and request.after is not None else place
        start[request.id] = first
        ends[first] = request.id if request.group is None else request.group
        start[ends[first]] = first
    return frozenset(ends.values())
