"""The waiting queue of SGLang, in the order of its schedule policy, and the inbox of requests that
the scheduler has not received yet.

A lookup marks cached prefixes as recently used (managers/schedule_policy.py). A policy that looks
up prefixes does so for all waiting requests whenever it sorts. Under the other policies the first
128 requests are looked up in every 32nd pass.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from kvsim.engine.schedulers.sglang.entry import QueueEntry
from kvsim.engine.schedulers.sglang.policies.policy import QueueView, SchedulePolicy
from kvsim.engine.schedulers.sglang.priorities import NO_PRIORITIES, PriorityRule
from kvsim.memory.prefix_room import PrefixRoom
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence

AFTER_PROMPTS = 1000
REFRESH_EVERY = 32  # passes
REFRESHED = 128  # requests at the head of the queue


class Inbox:
    """Requests sent to the scheduler and not received yet.

    With `--scheduler-recv-interval` above 1 the scheduler receives requests only every so often,
    counted in decode steps. A step with prompts counts as AFTER_PROMPTS of them
    (managers/scheduler_recv_skipper.py, 0.5.23). An idle scheduler receives in every pass.

    interval: decode steps from one receive to the next.
    """

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._steps = 0  # since the last receive
        self._sent: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def always_open(self) -> bool:
        """Whether every pass receives requests: interval is 1."""
        return self._interval == 1

    def send(self, seq: Sequence) -> None:
        """Send `seq` to the scheduler."""
        self._sent.append(seq)

    def steps_to_receive(self, limit: int) -> int:
        """Number of decode steps, at most `limit`, before a sent request is received."""
        return min(limit, self._interval - self._steps - 1) if self._sent else limit

    def decoded(self, steps: int) -> None:
        """Count `steps` decode steps in which no request was received."""
        self._steps = (self._steps + steps) % self._interval

    def receive(self, *, prompts: bool, idle: bool) -> list[Sequence]:
        """Start a pass; returns the requests received in it. prompts: the step before computed
        prompts.
        """
        self._steps += AFTER_PROMPTS if prompts else 1
        if self._steps < self._interval and not idle:
            return []
        self._steps = 0
        received, self._sent = self._sent, []
        return received


class SglangQueue:
    """The waiting requests. New and retracted ones are appended, and `policy` sorts the queue.

    Its length includes requests in the inbox, and `outside` ones, which wait for another engine;
    the scheduler does not see these.

    entries: record of each waiting or running request. prefilled_tokens: prompt tokens launched so
    far, as SGLang counts them.
    """

    def __init__(
        self,
        inbox: Inbox,
        policy: SchedulePolicy,
        priorities: PriorityRule = NO_PRIORITIES,
        outside: Collection[Sequence] = (),
    ) -> None:
        self.inbox = inbox
        self.policy, self.priorities = policy, priorities
        self._sorts = policy.sorts(priorities)
        self.entries: dict[Sequence, QueueEntry] = {}
        self.prefilled_tokens = 0
        self._outside = outside
        self._queue: dict[Sequence, None] = {}
        self._new: list[Sequence] = []
        self._entered = self._passes = self._sorted = 0

    def __len__(self) -> int:
        return len(self._queue) + len(self.inbox) + len(self._outside)

    @property
    def num_seen(self) -> int:
        """Number of waiting requests that the scheduler sees."""
        return len(self._queue)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._queue)

    @property
    def head(self) -> Sequence | None:
        return next(iter(self._queue), None)

    def add(self, seq: Sequence) -> None:
        self._entered += 1
        self.entries[seq] = QueueEntry(self._entered)
        self._queue[seq] = None
        self._new.append(seq)

    def put_back(self, seq: Sequence) -> None:
        before = self.entries[seq]
        self.add(seq)
        self.begin_pass()
        self.entries[seq].tried_tokens = before.tried_tokens

    def begin_pass(self) -> None:
        """Set the number of prompt tokens launched before their entry, for requests that have
        arrived since the last pass.
        """
        for seq in self._new:
            self.entries[seq].prefilled_tokens = self.prefilled_tokens
        self._new.clear()

    def pop(self) -> Sequence:
        head = next(iter(self._queue))
        del self._queue[head]
        return head

    def remove(self, seq: Sequence) -> None:
        del self._queue[seq]
        self.left(seq)

    def left(self, seq: Sequence) -> None:
        """Forget the record of a request that has ended."""
        if self.entries.pop(seq, None) is not None and seq in self._new:
            self._new.remove(seq)

    def bring_forward(self, seqs: Iterable[Sequence]) -> None:
        """Move `seqs` to the front, in their order."""
        self._queue = dict.fromkeys((*seqs, *self._queue))

    def arrange(
        self,
        room: PrefixRoom,
        wishes: Mapping[Sequence, int],
        running: Iterable[Sequence],
        *,
        cached: bool,
    ) -> None:
        """Sort the queue before a pass, and mark cached prefixes of waiting requests as recently
        used.

        wishes: max_new_tokens of each request. running: SGLang's running batch. cached: the pool
        has a prefix cache.
        """
        policy = self.policy
        sorts = policy.most is None or len(self._queue) <= policy.most
        if sorts and self._sorts:
            view = QueueView(
                room,
                self.entries,
                wishes,
                running,
                self.priorities,
                self.prefilled_tokens,
                self._sorted,
            )
            self._sorted += 1
            self._queue = dict.fromkeys(policy.order(list(self._queue), view))
        if not cached or (sorts and policy.looks_up):
            return
        if self._passes % REFRESH_EVERY == 0:
            front = [seq for seq, _ in zip(self._queue, range(REFRESHED), strict=False)]
            for seq in reversed(front):
                room.look_up(seq)
        self._passes += 1

    def shared_chunk(self, rest: int, chunk: int, page: int) -> int | None:
        """Limit on the tokens of the next chunk of a prompt, so that shorter waiting prompts fit
        into the same step; None: no limit (`shortest_prefill_chunk_limit`).

        rest: tokens of the prompt still to compute. chunk: limit on chunk tokens in this pass.
        page: tokens of a page.
        """
        if not self.policy.shares_chunks or chunk < 2 * page:
            return None
        shared = 0
        for seq in self._queue:
            work = self.entries[seq].work(seq)
            pages = ceil_div(work, page) * page
            if work >= rest or shared + pages > chunk - page:
                break
            shared += pages
        return (chunk - shared) // page * page if shared else None
