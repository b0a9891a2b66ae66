"""The pool of chunks in host memory (vLLM 0.33, v1/kv_offload/cpu/manager.py)."""

from collections import OrderedDict
from collections.abc import Callable

from kvsim.engine.connectors.offloading.chunk import ChunkContent, HostChunk
from kvsim.engine.connectors.offloading.policy import ChunkPolicy
from kvsim.sequence import Sequence


class Accesses:
    """Contents that one sequence has offered for storing or has loaded, by key.

    stored: keys that this sequence stored. reused: keys that another sequence had stored.
    """

    __slots__ = ("contents", "reused", "stored")

    def __init__(self) -> None:
        self.contents: dict[int, ChunkContent] = {}
        self.stored: set[int] = set()
        self.reused: set[int] = set()

    def tail_first(self) -> list[ChunkContent]:
        """All contents, those nearest to the tail of the sequence first. Of chunks with the same
        end, that of the last layer group comes first.
        """
        return sorted(self.contents.values(), key=_place, reverse=True)

    def found(self, key: int) -> None:
        """Note that the key is in host memory, stored by this sequence or by another."""
        if key not in self.stored:
            self.reused.add(key)


MOST_GROUPS = 1 << 16


def _place(content: ChunkContent) -> int:
    """Sort key of a chunk: by its end in the prompt, then by its layer group."""
    return content.end * MOST_GROUPS + content.group


class HostPool:
    """Slots of one size for chunks of all layer groups.

    store_threshold: number of offers of a content before it is stored; 0 and 1: at its first offer.
    max_tracker_size: most contents with counted offers. on_evict: called with each evicted chunk.
    changes: number of chunks stored, written or evicted so far. writing: number of chunks being
    written. pinned: number of chunks that copies read.
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
        self._accesses: dict[Sequence, Accesses] = {}
        self.writing = self.pinned = self.changes = 0
        self.on_evict: Callable[[HostChunk], None] = lambda chunk: None

    @property
    def num_used(self) -> int:
        """Number of slots in use."""
        return len(self._chunks)

    @property
    def keys(self) -> list[int]:
        """Keys of all chunks, the oldest first."""
        return list(self._chunks)

    def get(self, key: int) -> HostChunk | None:
        """The chunk with this key; None if there is none."""
        return self._chunks.get(key)

    def offer(self, seq: Sequence, contents: list[ChunkContent]) -> list[HostChunk] | None:
        """Allocate slots for those of `contents` that should be stored; None: there is no room for
        all, and nothing is stored.
        """
        if self._threshold >= 2:
            self._count([content.key for content in contents])
        absent: list[ChunkContent] = []
        touched: list[HostChunk] = []
        of = self._of(seq)
        known = len(of.contents)
        for content in contents:
            key = content.key
            chunk = self._chunks.get(key)
            if chunk is None:
                if self._threshold >= 2 and self._seen.get(key, 0) < self._threshold:
                    continue
                absent.append(content)
                of.contents.setdefault(key, content)
            elif chunk.ready:
                of.found(key)
                if key not in of.contents:
                    of.contents[key] = content
                    touched.append(chunk)
        if absent:
            self.policy.missed(seq, absent)
        if len(of.contents) > known:  # even if host memory cannot store some of them
            self.policy.accessed(seq, touched)
        missing = len(absent) - (self.num_slots - len(self._chunks))
        if missing > 0 and not self._evict(missing, {content.key for content in contents}):
            return None
        return [self._insert(seq, of, content) for content in absent]

    def _count(self, keys: list[int]) -> None:
        """Count an offer of these keys; the oldest other counts are dropped if there are too
        many.
        """
        seen = self._seen
        others = len(seen)
        for key in keys:
            if key in seen:
                seen[key] += 1
                seen.move_to_end(key)
                others -= 1
        for key in keys:
            if key in seen:
                continue
            if len(seen) >= self._tracked:
                if not others:
                    continue
                seen.popitem(last=False)
                others -= 1
            seen[key] = 1

    def _of(self, seq: Sequence) -> Accesses:
        found = self._accesses.get(seq)
        if found is None:
            found = self._accesses[seq] = Accesses()
        return found

    def _evict(self, missing: int, kept: set[int]) -> bool:
        """Evict `missing` chunks, none with a key in `kept`. Returns False, and evicts nothing, if
        fewer can be evicted.
        """
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

    def _insert(self, seq: Sequence, of: Accesses, content: ChunkContent) -> HostChunk:
        """Add a chunk that is being written from now on; a slot must be free."""
        if self._fresh < self.num_slots:
            slot = self._fresh
            self._fresh += 1
        else:
            slot = self._freed.pop()
        chunk = self._chunks[content.key] = HostChunk(content, slot)
        self.writing += 1
        self.changes += 1
        of.stored.add(content.key)
        self.policy.inserted(seq, chunk)
        return chunk

    def written(self, chunks: list[HostChunk]) -> None:
        """The copy that writes `chunks` has ended: they can be hit."""
        for chunk in chunks:
            chunk.ready = True
        self.changes += len(chunks)
        self.writing -= len(chunks)

    def load(self, seq: Sequence, chunks: list[HostChunk]) -> None:
        """Pin `chunks`, since a load for `seq` begins to read them."""
        of = self._of(seq)
        for chunk in chunks:
            self.pin(chunk)
            of.found(chunk.key)
            if chunk.key not in of.contents:
                of.contents[chunk.key] = chunk.content
                self.policy.accessed(seq, [chunk])

    def pin(self, chunk: HostChunk) -> None:
        """A copy begins to read `chunk`, which cannot be evicted meanwhile."""
        self.pinned += not chunk.pins
        chunk.pins += 1

    def unpin(self, chunks: list[HostChunk]) -> None:
        """Unpin `chunks`, since a copy that read them has ended."""
        for chunk in chunks:
            chunk.pins -= 1
            self.pinned -= not chunk.pins

    def finished(self, seq: Sequence) -> None:
        """Forget the accesses of a finished sequence."""
        of = self._accesses.pop(seq, None) or Accesses()
        found = [self._chunks.get(content.key) for content in of.tail_first()]
        chunks = [chunk for chunk in found if chunk is not None]
        self.policy.finished(seq, chunks, of.stored - of.reused, of.reused)
