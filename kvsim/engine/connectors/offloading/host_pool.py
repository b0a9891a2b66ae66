"""The pool of chunks in host memory (vLLM 0.33, v1/kv_offload/cpu/manager.py)."""

from collections import OrderedDict
from collections.abc import Callable

from kvsim.engine.connectors.offloading.chunk import HostChunk
from kvsim.engine.connectors.offloading.policy import ChunkPolicy
from kvsim.sequence import Sequence


class Offered:
    """Content that a sequence offers: keys of successive chunks, and up to how many chunks each
    ends.
    """

    __slots__ = ("ends", "keys")

    def __init__(self, keys: list[int], ends: list[int]) -> None:
        self.keys, self.ends = keys, ends


class HostPool:
    """Slots of one size for chunks of all groups of layers.

    store_threshold: content is stored when it has been offered so often, where that is 2 or more;
    max_tracker_size: of so many contents this is counted. on_evict: hears of chunks that leave.
    changes: how often a chunk came, was written or left. writing, pinned: chunks that are being
    written, and that copies read.
    """

    def __init__(
        self,
        num_slots: int,
        policy: ChunkPolicy,
        store_threshold: int = 0,
        max_tracker_size: int = 64_000,
    ) -> None:
        self.num_slots, self.policy = num_slots, policy
        self._threshold, self._tracked = store_threshold, max_tracker_size
        self._chunks: dict[int, HostChunk] = {}
        self._fresh = 0
        self._freed: list[int] = []
        self._seen: OrderedDict[int, int] = OrderedDict()
        self._own: dict[Sequence, set[int]] = {}  # what each has put there
        self.writing = self.pinned = self.changes = 0
        self.on_evict: Callable[[HostChunk], None] = lambda chunk: None

    @property
    def num_used(self) -> int:
        """Slots that are taken."""
        return len(self._chunks)

    @property
    def keys(self) -> list[int]:
        """The contents that are there, oldest slot first."""
        return list(self._chunks)

    def get(self, key: int) -> HostChunk | None:
        """The chunk with this content."""
        return self._chunks.get(key)

    def offer(self, seq: Sequence, offered: Offered) -> list[HostChunk] | None:
        """What of this is to be stored, with slots taken for it; None: there is no room for all of
        it, and nothing is stored.
        """
        keys = offered.keys
        if self._threshold >= 2:
            self._count(keys)
        absent: list[int] = []
        for place, key in enumerate(keys):
            chunk = self._chunks.get(key)
            if chunk is not None:
                if chunk.ready:
                    self._reuse(seq, chunk)
            elif self._threshold < 2 or self._seen[key] >= self._threshold:
                absent.append(place)
        self.policy.missed(seq, [keys[place] for place in absent])
        if not self._make_room(len(absent), set(keys)):
            return None
        return [self.insert(seq, keys[place], offered.ends[place]) for place in absent]

    def _count(self, keys: list[int]) -> None:
        for key in keys:
            self._seen[key] = self._seen.get(key, 0) + 1
            self._seen.move_to_end(key)
        kept = set(keys)
        over = len(self._seen) - self._tracked
        for key in [key for key in self._seen if key not in kept][: max(0, over)]:
            del self._seen[key]

    def _make_room(self, count: int, kept: set[int]) -> bool:
        """Evict until so many slots are free; False: that cannot be, and nothing is evicted."""
        missing = count - (self.num_slots - len(self._chunks))
        if missing <= 0:
            return True
        leaving = self.policy.choose(missing, kept)
        if leaving is None:
            return False
        for chunk in leaving:
            self.policy.evicted(chunk)
            del self._chunks[chunk.key]
            self.changes += 1
            self._freed.append(chunk.slot)
            self.on_evict(chunk)
        return True

    def make_room_for(self, key: int) -> bool:
        """One slot for this content, whatever else the one who asks has found."""
        return self._make_room(1, {key})

    def insert(self, seq: Sequence, key: int, end: int) -> HostChunk:
        """A chunk that is being written from now on; a slot is free."""
        if self._fresh < self.num_slots:
            slot = self._fresh
            self._fresh += 1
        else:
            slot = self._freed.pop()
        chunk = self._chunks[key] = HostChunk(key, slot, end)
        self.writing += 1
        self.changes += 1
        self._own.setdefault(seq, set()).add(key)
        self.policy.inserted(seq, chunk)
        return chunk

    def written(self, chunk: HostChunk) -> None:
        """A chunk holds its content."""
        chunk.ready = True
        self.changes += 1
        self.writing -= 1

    def load(self, seq: Sequence, chunk: HostChunk) -> None:
        """A load begins to read a chunk."""
        self.pin(chunk)
        self._reuse(seq, chunk)

    def pin(self, chunk: HostChunk) -> None:
        """A copy begins to read a chunk, which stays meanwhile."""
        self.pinned += not chunk.pins
        chunk.pins += 1

    def unpin(self, chunk: HostChunk) -> None:
        """A copy has read a chunk."""
        chunk.pins -= 1
        self.pinned -= not chunk.pins

    def _reuse(self, seq: Sequence, chunk: HostChunk) -> None:
        if chunk.key not in self._own.get(seq, ()):
            self.policy.reused(seq, chunk)

    def finished(self, seq: Sequence) -> None:
        """A sequence is done."""
        self._own.pop(seq, None)
        self.policy.finished(seq)
