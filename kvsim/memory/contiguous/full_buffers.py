"""When the next decoder's buffer is full: a heap of clocks.

With base = valid slots - clock at joining, a decoder's buffer of q slots is full at clock q - base.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from kvsim.sequence import Sequence


class Buffer:
    """The buffers of one sequence and their valid slots.

    regions: addresses, one for each of the allocator's shapes. asked: slots requested; granted:
    bytes allocated. tokens: valid slots while the sequence does not decode. computed: valid slots
    before its last step, while it does not decode. joined: slots when it began to decode. ticket:
    identifies its entry in the heap of full buffers; -1 while it does not decode.
    """

    __slots__ = ("asked", "computed", "granted", "joined", "regions", "ticket", "tokens")

    def __init__(self, regions: list[int], asked: int, granted: int) -> None:
        self.regions = regions
        self.asked = asked
        self.granted = granted
        self.tokens = self.computed = 0
        self.joined = 0
        self.ticket = -1


class FullBuffers:
    """A heap of the decoders' buffers, by the clock at which each is full.

    A sequence that stops decoding, or gets another buffer, leaves a stale entry.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, Sequence]] = []  # (clock, ticket, sequence)
        self._tickets = 0

    def watch(self, seq: Sequence, buffer: Buffer, num_decoding: int) -> None:
        """Add the buffer of the decoding `seq`. num_decoding: number of decoders, to bound stale
        entries.
        """
        self._tickets += 1
        buffer.ticket = self._tickets
        heappush(self._entries, (buffer.asked - seq.base, buffer.ticket, seq))
        if len(self._entries) > 2 * num_decoding + 64:
            self._entries = [entry for entry in self._entries if _stands(entry)]
            heapify(self._entries)

    def full_at(self, clock: int) -> list[Sequence]:
        """The decoders with full buffers at `clock`."""
        found = []
        while self._entries and self._entries[0][0] <= clock:
            entry = heappop(self._entries)
            if _stands(entry):
                found.append(entry)
        for entry in found:
            heappush(self._entries, entry)
        return [seq for _, _, seq in found]

    def steps_to_full(self, clock: int, limit: int) -> int:
        """Steps from `clock` on until the first buffer is full, at most `limit`."""
        while self._entries and not _stands(self._entries[0]):
            heappop(self._entries)
        return min(limit, max(self._entries[0][0] - clock, 0)) if self._entries else limit

    def __iter__(self) -> Iterator[Sequence]:
        """The sequences with an entry that is not stale."""
        return (entry[2] for entry in self._entries if _stands(entry))


def _stands(entry: tuple[int, int, Sequence]) -> bool:
    """Whether a heap entry is current: its sequence still decodes into the same buffer."""
    memory = entry[2].memory
    return memory is not None and memory.ticket == entry[1]
