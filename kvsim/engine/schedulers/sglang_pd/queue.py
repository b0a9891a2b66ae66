"""Queues of an SGLang decode engine: requests that wait for room, and retracted ones that wait
again.
"""

from kvsim.engine.transfers.exchange import Transfer
from kvsim.sequence import Sequence


class DecodeQueue:
    """arrived: not seen by a pass yet.

    preallocating: without room so far. transferring: with room, and KV in flight. draining: ended
    by a failed transfer, with room that is not free yet. ready: with transferred KV, not decoding
    yet. retracted: with KV in host memory.
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
        """Requests with a metadata buffer."""
        return len(self.transferring) + len(self.draining)

    @property
    def head(self) -> Sequence | None:
        """Nobody starts here: KV comes from elsewhere."""
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
