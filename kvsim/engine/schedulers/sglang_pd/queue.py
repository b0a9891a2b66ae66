"""Queues of an SGLang decode engine, by the state of a request's KV."""

from kvsim.engine.transfers.exchange import Transfer
from kvsim.sequence import Sequence


class DecodeQueue:
    """Requests that do not decode yet, or not at the moment.

    arrived: not seen by a pass yet. preallocating: without memory so far. transferring: with
    memory, and KV in flight. draining: ended by a failed transfer, with memory that is not free
    yet. ready: with transferred KV. retracted: with KV in host memory.
    """

    def __init__(self) -> None:
        self.arrived: list[Sequence] = []
        self.preallocating: dict[Sequence, Transfer] = {}
        self.transferring: dict[Sequence, Transfer] = {}
        self.draining: dict[Sequence, Transfer] = {}
        self.ready: dict[Sequence, None] = {}
        self.retracted: dict[Sequence, None] = {}

    def __len__(self) -> int:
        return len(self.arrived) + sum(map(len, self._all))

    @property
    def _all(self) -> tuple[dict[Sequence, Transfer] | dict[Sequence, None], ...]:
        return self.preallocating, self.transferring, self.ready, self.retracted

    @property
    def num_buffers(self) -> int:
        """Number of requests with a metadata buffer."""
        return len(self.transferring) + len(self.draining)

    @property
    def head(self) -> Sequence | None:
        """None: no request starts with a prompt to compute on this engine."""
        return None

    def add(self, seq: Sequence) -> None:
        self.arrived.append(seq)

    def put_back(self, seq: Sequence) -> None:
        self.retracted[seq] = None

    def pop(self) -> Sequence:
        return self.arrived.pop(0)

    def remove(self, seq: Sequence) -> None:
        for waiting in self._all:
            waiting.pop(seq, None)
