"""The queues of vLLM's scheduler under a KV connector: sequences that hold blocks for a load, and
waiting ones.
"""

from kvsim.engine.policies.queue import PriorityQueue, WaitingQueue, priority_key
from kvsim.plumbing.errors import InputError
from kvsim.sequence import Sequence


class HoldingQueues:
    """A waiting queue, and before it the sequences that hold blocks, in the order in which their
    loads started, or by priority.

    loading: sequences with a load in flight. loaded: sequences with a load that ended. ready: those
    tried since then. failed: sequences with a failed load. Each maps to the number of slots that
    its load makes valid; 0 if the sequence has freed its blocks.
    """

    def __init__(self, waiting: WaitingQueue) -> None:
        self.waiting = waiting
        self.holding: dict[Sequence, None] = {}
        self.loading: dict[Sequence, int] = {}
        self.loaded: dict[Sequence, int] = {}
        self.ready: dict[Sequence, int] = {}
        self.failed: dict[Sequence, int] = {}
        self._chosen: Sequence | None = None

    def __len__(self) -> int:
        return len(self.waiting) + len(self.holding)

    @property
    def head(self) -> Sequence | None:
        """The first waiting sequence that holds no blocks; None if there is none."""
        return self._chosen or self.waiting.head

    def choose(self, seq: Sequence) -> list[Sequence]:
        """Make `seq`, which freed its blocks after a failed load, the head of the queue.

        Returns the sequences that held blocks, in order, for `unchoose`.
        """
        order = list(self.holding)
        self.let_go(seq)
        self._chosen = seq
        return order

    def unchoose(self, seq: Sequence, order: list[Sequence]) -> None:
        """If `seq` found no room and is still the next one, put it back where it was in `order`."""
        if self._chosen is seq:
            self._chosen = None
            self.holding = dict.fromkeys(order)
            self.failed[seq] = 0

    def add(self, seq: Sequence) -> None:
        """Add a new sequence."""
        self.waiting.add(seq)

    def put_back(self, seq: Sequence) -> None:
        """Queue a preempted or skipped sequence again."""
        self.waiting.put_back(seq)

    def pop(self) -> Sequence:
        """Remove and return the head of the queue."""
        seq, self._chosen = self._chosen, None
        return seq or self.waiting.pop()

    def remove(self, seq: Sequence) -> None:
        """Remove the waiting `seq`."""
        if seq in self.holding:
            self.let_go(seq)
        else:
            self.waiting.remove(seq)

    @property
    def in_turn(self) -> list[Sequence]:
        """Sequences that hold blocks, in the order in which they are tried."""
        if isinstance(self.waiting, PriorityQueue):
            return sorted(self.holding, key=priority_key)
        return list(self.holding)

    @property
    def remote(self) -> list[Sequence]:
        """Sequences that wait for KV (WAITING_FOR_REMOTE_KVS), until they are tried after their
        load.
        """
        return [seq for seq in self.in_turn if seq not in self.ready and self.failed.get(seq) != 0]

    def load(self, seq: Sequence, num_tokens: int) -> None:
        """Add `seq`, removed from the queue, to wait until its first num_tokens slots are
        loaded.
        """
        self.holding[seq] = None
        self.loading[seq] = num_tokens

    def reported(self, seq: Sequence) -> None:
        """Note that the load of `seq` has ended."""
        self.loaded[seq] = self.loading.pop(seq)

    def has_failed(self, seq: Sequence) -> None:
        """Note that the load of `seq` has failed."""
        self.failed[seq] = self.loading.pop(seq)

    def promote(self, seq: Sequence) -> int:
        """Move `seq`, with an ended load, to `ready`; returns its number of valid slots."""
        if seq in self.loaded:
            self.ready[seq] = self.loaded.pop(seq)
        return self.ready[seq]

    def check_deadlock(self) -> None:
        """Raise InputError if nothing runs or loads, and sequences hold blocks that will never be
        freed.

        The first of them does not fit, and the later ones hold their blocks until it starts.
        """
        if self.loading or not self.holding:
            return
        first = self.in_turn[0]
        raise InputError(
            "requests wait for each other for ever: the first has no room for its prompt, and "
            "later ones hold blocks until it starts",
            where="scheduler",
            value=f"{first.id} of {first.num_tokens:,} tokens, {len(self.holding) - 1} after it",
            remedy='give the pool more memory, or set kv_load_failure_policy = "fail"',
        )

    def let_go(self, seq: Sequence) -> None:
        """Remove `seq`, which runs, waits without blocks, or has failed."""
        del self.holding[seq]
        for state in self.loading, self.loaded, self.ready, self.failed:
            state.pop(seq, None)
