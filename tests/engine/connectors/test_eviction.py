"""Chunks are evicted from host memory in the order of the `lru` policy of vLLM 0.33."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from support.buffers import sequence

from kvsim.engine.connectors.offloading.chunk import ChunkContent, HostChunk
from kvsim.engine.connectors.offloading.lru import LeastRecentlyUsed
from kvsim.sequence import Sequence

Rank = tuple[int, int, int]
ACTS = ["offer", "offer", "touch", "finish", "evict", "pin"]


class PlainRanks:
    """The `lru` policy as one dictionary: each chunk has a rank, and the lowest ranks are evicted
    first.

    A rank has the number of the request, minus the end of the chunk, and the time at which the
    chunk got the rank.
    """

    def __init__(self) -> None:
        self.ranks: dict[HostChunk, Rank] = {}
        self.numbers: dict[Sequence, int] = {}
        self.last = self.placed = 0

    def number(self, seq: Sequence) -> int:
        if seq not in self.numbers:
            self.last += 1
            self.numbers[seq] = self.last
        return self.numbers[seq]

    def touch(self, seq: Sequence, chunk: HostChunk) -> None:
        rank = self.number(seq), -chunk.content.end
        if rank > self.ranks.get(chunk, (0, 0, 0))[:2]:
            self.placed += 1
            self.ranks[chunk] = *rank, self.placed

    def finish(self, seq: Sequence, tail_first: list[HostChunk]) -> None:
        self.numbers.pop(seq, None)
        for chunk in tail_first:
            self.last += 1
            self.ranks[chunk] = self.last, 0, 0

    def choose(self, count: int, kept: set[int]) -> list[HostChunk] | None:
        order = sorted(self.ranks, key=self.ranks.__getitem__)
        found = [chunk for chunk in order if chunk.evictable and chunk.key not in kept][:count]
        return found if len(found) == count else None


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_lru_evicts_in_the_order_of_a_plain_list_of_ranks(seed: int) -> None:
    draw = random.Random(seed)
    policy, plain = LeastRecentlyUsed(0), PlainRanks()
    present: dict[int, HostChunk] = {}
    touched: dict[Sequence, dict[int, ChunkContent]] = {}
    # Each key has one place in a prompt: one of six ends, in one of two layer groups.
    contents = [ChunkContent(key, key // 2 % 6 + 1, key % 2) for key in range(36)]
    seqs = [sequence(8, 8, order) for order in range(5)]
    for _ in range(120):
        seq, act = draw.choice(seqs), draw.choice(ACTS)
        if act in ("offer", "touch"):
            some = draw.sample(contents, draw.randint(1, 5))
            of = touched.setdefault(seq, {})
            new = [content for content in some if content.key not in of]
            of.update((content.key, content) for content in new)
            if new:
                policy.accessed(seq, [present[c.key] for c in new if c.key in present])
                plain.number(seq)
            for content in new:
                if content.key in present:
                    plain.touch(seq, present[content.key])
            for content in new if act == "offer" else ():
                if content.key not in present:
                    chunk = present[content.key] = HostChunk(content, 0)
                    chunk.ready = True
                    policy.inserted(seq, chunk)
                    plain.touch(seq, chunk)
        elif act == "finish":
            of = touched.pop(seq, {})
            tail = sorted(of.values(), key=lambda c: (-c.end, -c.group))
            left = [present[content.key] for content in tail if content.key in present]
            policy.finished(seq, left, (), ())
            plain.finish(seq, left)
        elif act == "pin" and present:
            chunk = draw.choice(list(present.values()))
            chunk.pins = 1 - chunk.pins
        elif act == "evict":
            kept, count = set(draw.sample(range(36), 4)), draw.randint(1, 6)
            chosen = policy.choose(count, kept)
            assert chosen == plain.choose(count, kept)
            for chunk in chosen or ():
                policy.evicted(chunk)
                del present[chunk.key], plain.ranks[chunk]
