"""Requests that arrive after another one has finished: turns of a conversation, users of a closed
loop.

A turn arrives after the answer to the turn before it. In a closed loop the next conversation or
request starts when any user is free, as in `vllm bench serve --max-concurrency`. So `after` of the
first request of a conversation only gives the order of starts, not the request that it waits for.
"""

from collections import Counter, deque
from collections.abc import Sequence

from kvsim.request import Request


class Followers:
    """The requests of a stream that have not arrived, as another request must finish first."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._waiting: dict[str, list[Request]] = {}
        self._starts = deque(each for each in requests if each.any_user)
        self._ends = _ends(requests) if self._starts else frozenset[str]()
        self._open = Counter(each.group for each in requests if each.group is not None)
        for request in requests:
            if request.after is not None and not request.any_user:
                self._waiting.setdefault(request.after, []).append(request)

    def after(self, left: Request) -> list[Request]:
        """The requests that arrive `think_ps` after `left`, which has just finished."""
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
    """Last request of each conversation, or its group if it has one: its answer frees a user."""
    start: dict[str, int] = {}
    ends: dict[int, str] = {}
    for place, request in enumerate(requests):
        turn = request.after is not None and not request.any_user
        first = start[request.after] if turn and request.after is not None else place
        start[request.id] = first
        ends[first] = request.id if request.group is None else request.group
        start[ends[first]] = first
    return frozenset(ends.values())
