"""The waiting queue of SGLang, first come first served or by longest cached prefix (lpm), and the
requests not received yet.

Both orders mark the prefixes that waiting requests would hit as recently used
(managers/schedule_policy.py). lpm marks all of them each time it sorts, fcfs sometimes marks those
of the first requests.
"""

from collections.abc import Collection, Iterable, Iterator

from kvsim.memory.prefix_room import PrefixRoom
from kvsim.sequence import Sequence
from kvsim.token_runs import beginning

AFTER_PROMPTS = 1000
REFRESH_EVERY = 32  # passes
REFRESHED = 128  # requests at the head of the queue
LPM_MOST = 128  # waiting requests; with more lpm acts as fcfs
IN_BATCH_TOKENS = 32  # in common with one before it, and not cached: it waits for that one


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
    """The waiting requests; new and retracted ones are appended.

    Its length includes requests in the inbox, and `outside` ones, which wait for another engine;
    the scheduler does not see these.
    """

    def __init__(
        self, inbox: Inbox, *, longest_prefix: bool, outside: Collection[Sequence] = ()
    ) -> None:
        self.inbox = inbox
        self._outside = outside
        self._longest_prefix = longest_prefix
        self._queue: dict[Sequence, None] = {}
        self._passes = 0

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
        self._queue[seq] = None

    put_back = add

    def pop(self) -> Sequence:
        head = next(iter(self._queue))
        del self._queue[head]
        return head

    def remove(self, seq: Sequence) -> None:
        del self._queue[seq]

    def bring_forward(self, seqs: Iterable[Sequence]) -> None:
        """Move `seqs` to the front, in their order."""
        self._queue = dict.fromkeys((*seqs, *self._queue))

    def arrange(self, room: PrefixRoom) -> None:
        """Order the queue before a pass over a prefix cache, and mark the prefixes it would hit as
        recently used.
        """
        if self._longest_prefix and len(self._queue) <= LPM_MOST:
            self._sort(room)
            return
        if self._passes % REFRESH_EVERY == 0:
            front = [seq for seq, _ in zip(self._queue, range(REFRESHED), strict=False)]
            for seq in reversed(front):
                room.look_up(seq)
        self._passes += 1

    def _sort(self, room: PrefixRoom) -> None:
        """Sort by longest cached prefix.

        A request that shares an uncached prefix with an earlier one is sorted last. So it can hit
        the pages that the earlier one computes.
        """
        found: dict[Sequence, int] = {}
        beginnings = set()
        for seq in self._queue:
            matched, on_device = room.look_up(seq)
            found[seq] = min(matched, seq.num_tokens - 1)
            if on_device > IN_BATCH_TOKENS:
                continue
            tokens = beginning(seq, IN_BATCH_TOKENS)
            if tokens is None:
                continue
            if tokens in beginnings:
                found[seq] = -1
            beginnings.add(tokens)
        self._queue = dict.fromkeys(sorted(self._queue, key=found.__getitem__, reverse=True))
