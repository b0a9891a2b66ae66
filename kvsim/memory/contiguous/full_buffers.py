"""When the next decoder's buffer is full: a heap of clocks.

A decoder with `base` valid slots minus the clock has a full buffer of q slots at clock
q - base.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from kvsim.sequence import Sequence


class Buffer:
    """The buffers of one sequence and their valid slots.

    regions: addresses, one for each of the allocator's shapes. asked, granted: slots, bytes.
    tokens: valid slots while it does not decode, computed: those it had before the last step it was
    in. joined: slots it began to decode with.
    ticket: names its entry in the heap of full buffers; -1 while it does not decode.
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
    """The buffers of decoders, by the clock at which they are full.

    A sequence that stops decoding, or gets another buffer, leaves a stale entry.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, Sequence]] = []  # (clock, ticket, sequence)
        self._tickets = 0

    def watch(self, seq: Sequence, buffer: Buffer, num_decoding: int) -> None:
        """Watch the buffer that `seq`, one of `num_decoding`, decodes into."""
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
        """Steps from `clock` on until the first is full, at most `limit`."""
        while self._entries and not _stands(self._entries[0]):
            heappop(self._entries)
        return min(limit, max(self._entries[0][0] - clock, 0)) if self._entries else limit

    def __iter__(self) -> Iterator[Sequence]:
        """The sequences with watched buffers."""
        return (entry[2] for entry in self._entries if _stands(entry))


def _stands(entry: tuple[int, int, Sequence]) -> bool:
    """Whether an entry still speaks of its sequence's buffer."""
    memory = entry[2].memory
    return memory is not None and memory.ticket == entry[1]
