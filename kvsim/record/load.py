"""Send a stream of requests to a server on schedule; a follow-up request is sent after the answer
it waits for.
"""

import asyncio
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush

from kvsim.followers import Followers
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.record.reply import Now, Reply
from kvsim.request import Request, Stream

Send = Callable[[Request], Awaitable[Reply]]
MOST_FAULTS = 20  # one after the other: the server is gone


def check_sendable(stream: Stream, longest: int | None) -> None:
    """InputError for a request that cannot be sent to a server as the stream describes it.

    Such requests have images, adapters, beams, parallel samples or no output, or are longer than
    `longest` tokens. longest is the server's maximum; None: not known.
    """
    for request in stream.requests:
        lacks = (
            ("images or sounds", bool(request.items)),
            ("adapters", request.adapter is not None),
            ("groups of requests", request.group is not None),
            ("parallel samples", request.n > 1),
            ("prompts without an answer", request.output_tokens < 1),
        )
        for what, has in lacks:
            if has:
                raise InputError(f"{what} are not sent to a server", where=f"request {request.id}")
        whole = request.prompt_tokens + request.output_tokens
        if longest is not None and whole > longest:
            raise InputError(
                "longer than the server takes",
                where=f"request {request.id}",
                value=f"{request.prompt_tokens:,} + {request.output_tokens:,} tokens",
                limit=f"{longest:,} (its max_model_len)",
                remedy="ask for shorter prompts or answers",
            )


class SentLoad:
    """Sends each request of a stream when it is due, and its follow-ups once it is answered.

    now gives the event loop's time in s. moved is called with (answered requests, all requests).
    replies are in order of completion. late_s is the largest delay of a request beyond its due
    time; 0 if the client limits concurrency.
    """

    def __init__(
        self, stream: Stream, send: Send, now: Now, moved: Callable[[int, int], None]
    ) -> None:
        self._stream, self._send, self._now, self._moved = stream, send, now, moved
        self.replies: list[Reply] = []
        self.late_s = 0.0
        self.gave_up = False
        self._faults = 0
        self._due: list[tuple[float, int, Request]] = []
        self._followers = Followers(stream.requests)
        self._order = {request.id: order for order, request in enumerate(stream.requests)}
        self._tasks: set[asyncio.Task[Reply]] = set()

    async def run(self, until_s: float | None = None) -> None:
        """Send all requests and wait for the answers. If cancelled, answers received so far remain
        in `replies`.

        until_s is the time on the clock of `now` after which nothing more is sent; requests in
        flight are still waited for.
        """
        begin_s = self._now()
        for order, request in enumerate(self._stream.requests):
            if request.after is None:
                heappush(self._due, (begin_s + request.arrival_ps / PS_PER_S, order, request))
        try:
            while self._due or self._tasks:
                if self.gave_up or (until_s is not None and self._now() >= until_s):
                    self._due.clear()
                self._send_due()
                await self._wait(until_s)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def in_flight(self) -> int:
        """The number of requests sent and not answered yet."""
        return len(self._tasks)

    def _full(self) -> bool:
        most = self._stream.max_concurrency
        return most is not None and len(self._tasks) >= most

    def _send_due(self) -> None:
        while self._due and self._due[0][0] <= self._now() and not self._full():
            due_s, _, request = heappop(self._due)
            if self._stream.max_concurrency is None:
                self.late_s = max(self.late_s, self._now() - due_s)
            self._tasks.add(asyncio.ensure_future(self._send(request)))

    async def _wait(self, until_s: float | None) -> None:
        """Wait until the next request is due, one in flight ends, or until_s."""
        left_s = None
        if self._due and not self._full():
            left_s = max(0.0, self._due[0][0] - self._now())
            if until_s is not None:
                left_s = min(left_s, max(0.0, until_s - self._now()))
        if not self._tasks:
            await asyncio.sleep(left_s or 0.0)
            return
        done, self._tasks = await asyncio.wait(
            self._tasks, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            self._ended(task.result())

    def _ended(self, reply: Reply) -> None:
        self.replies.append(reply)
        self._faults = self._faults + 1 if reply.error else 0
        self.gave_up = self.gave_up or self._faults >= MOST_FAULTS
        for follower in self._followers.after(reply.request):
            due_s, order = self._now() + follower.think_ps / PS_PER_S, self._order[follower.id]
            heappush(self._due, (due_s, order, follower))
        self._moved(len(self.replies), len(self._stream.requests))
