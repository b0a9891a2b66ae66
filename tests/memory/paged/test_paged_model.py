"""The paged allocators against a slow model of block pool and prefix cache, written from the rules:
random operations, the same block tables, the same free queue, the same hits; where blocks are
counted, as many of them, and the same content in the same order.
"""

from itertools import takewhile
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.allocator import Demand
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.blocks import BLANK, NAMELESS, extents_of
from kvsim.memory.paged.options import Paged
from kvsim.memory.paged.pool import BlockPool
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence
from kvsim.vllm.rules import BlockRules
from kvsim.vllm.versions import V0_11, V0_33

Tokens = tuple[int, ...]


class Model:
    """vLLM's block pool, one object per block. A block's content is all tokens up to its end."""

    def __init__(self, num_blocks: int, size: int, *, caching: bool, lag: int, v011: bool) -> None:
        self.free = list(range(1, num_blocks))
        self.refs = dict.fromkeys(self.free, 0)
        self.content: dict[int, Tokens] = {}
        self.holders: dict[Tokens, list[int]] = {}  # oldest first
        self.tables: dict[Sequence, list[int]] = {}
        self.size, self.caching, self.lag, self.v011 = size, caching, lag, v011

    def take(self) -> int:
        block = self.free.pop(0)
        if block in self.content:
            self.holders[self.content.pop(block)].remove(block)
        self.refs[block] = 1
        return block

    def name(self, seq: Sequence, tokens: Tokens, known: int) -> None:
        """Cache the full blocks among the first `known` slots."""
        for index in range(known // self.size if self.caching else 0):
            block, content = self.tables[seq][index], tokens[: (index + 1) * self.size]
            if block not in self.content:
                self.content[block] = content
                self.holders.setdefault(content, []).append(block)

    def hits(self, tokens: Tokens) -> list[int]:
        found: list[int] = []
        for end in range(self.size, len(tokens), self.size):  # the last token is not looked up
            holders = self.holders.get(tokens[:end])
            if not holders:
                break
            found.append(holders[0])
        return found

    def admit(self, seq: Sequence, tokens: Tokens, slots: int, reserve: int) -> bool:
        hits = self.hits(tokens)
        revived = sum(self.refs[block] == 0 for block in hits)
        if ceil_div(reserve, self.size) - len(hits) + revived > len(self.free):
            return False
        for block in hits:
            if not self.refs[block]:
                self.free.remove(block)
            self.refs[block] += 1
        self.tables[seq] = list(hits)
        self.grow(seq, slots)
        self.name(seq, tokens, slots)
        return True

    def grow(self, seq: Sequence, slots: int) -> None:
        while len(self.tables[seq]) * self.size < slots:
            self.tables[seq].append(self.take())

    def room(self, seq: Sequence, slots: int) -> bool:
        return ceil_div(slots, self.size) - len(self.tables[seq]) <= len(self.free)

    def release(self, seq: Sequence) -> None:
        last, first = [], []
        for block in reversed(self.tables.pop(seq)):
            self.refs[block] -= 1
            if not self.refs[block]:
                known = block in self.content or self.v011
                (last if known else first).append(block)
        self.free = first + self.free + last


class Harness:
    """Does the same to both, and compares."""

    def __init__(
        self, random: Random, *, caching: bool, lag: int, rules: BlockRules, counted: bool
    ) -> None:
        self.random = random
        self.size = random.choice([1, 2, 4])
        num_blocks = random.randint(6, 24)
        layout = KVLayout((KVGroup("full", 1, 1),))
        memory = MemorySpec(
            num_blocks * self.size, layout, 512, 1, lag, lag, rules, unwatched=counted
        )
        options = Paged(block_size=self.size, enable_prefix_caching=caching)
        allocator = options.build(memory)
        assert isinstance(allocator, PagedAllocator)
        assert isinstance(allocator.pool, BlockPool)
        assert allocator.pool.tracked != counted
        self.real: Any = allocator
        self.compare_blocks = self.compare_counts if counted else self.compare_tables
        self.model = Model(
            num_blocks, self.size, caching=caching, lag=lag, v011=not rules.blank_first
        )
        self.lag = lag
        self.usable = (num_blocks - 1) * self.size
        self.waiting: list[Sequence] = []
        self.filling: list[Sequence] = []
        self.decoding: list[Sequence] = []
        self.slots: dict[Sequence, int] = {}
        self.content: dict[Sequence, Tokens] = {}
        self.orders = 0
        self.num = 0
        self.named: dict[int, Tokens] = {}  # what each key was seen to name
        self.shared: set[Tokens] = set()  # of it, what others could name as well

    def arrive(self) -> None:
        """Add a request with a shared prefix, with the outputs of another as prefix, or private."""
        random, total = self.random, self.random.randint(2, min(self.usable, 30))
        prompt = random.randint(1, total)
        self.num += 1
        own = self.num << 20
        runs: tuple[tuple[int, int], ...] | None = None
        if random.random() < 0.7:
            shared = random.randint(0, prompt)
            runs = (random.choice([1 << 40, 1 << 41]), shared), (own, prompt - shared)
        start = random.choice([None, own + 1000, 1 << 42])
        request = Request(
            str(self.num), 0, prompt, total - prompt + 1, prompt_runs=runs, output_start=start
        )
        seq = Sequence(request, 0)
        private = -self.num << 20
        tokens = [t for a, n in runs or ((private, prompt),) for t in range(a, a + n)]
        named = runs is not None and start is not None
        first = start if named and start is not None else private + 1000
        tokens += range(first, first + request.output_tokens)
        self.content[seq] = tuple(tokens)
        self.waiting.append(seq)

    def admit(self) -> None:
        if not self.waiting:
            return
        seq = self.random.choice(self.waiting)
        known = self.content[seq][: seq.num_tokens]
        hit = self.real.cached_tokens(seq)
        assert hit == len(self.model.hits(known)) * self.size
        slots = self.random.randint(hit + 1, seq.num_tokens)
        reserve = self.random.choice([slots, seq.num_tokens])
        admitted = self.real.admit(seq, Demand(slots, reserve, hit, busy=True))
        assert (admitted is not None) == self.model.admit(seq, known, slots, reserve)
        if admitted:
            self.orders += 1
            seq.order = self.orders
            self.waiting.remove(seq)
            self.filled(seq, slots)

    def filled(self, seq: Sequence, slots: int) -> None:
        """Note that `seq` has computed `slots` slots; with all known tokens computed it samples the
        next one.
        """
        self.slots[seq] = slots
        if seq not in self.filling:
            self.filling.append(seq)
        if slots == seq.num_tokens:
            self.filling.remove(seq)
            seq.num_outputs += 1
            if seq.num_outputs == seq.output_tokens:
                self.leave(seq, finished=True)
            else:
                seq.decoding = True
                self.real.join(seq, slots)
                self.decoding.append(seq)

    def extend(self) -> None:
        if not self.filling:
            return
        seq = self.random.choice(self.filling)
        slots = self.random.randint(self.slots[seq] + 1, seq.num_tokens)
        room = self.real.extend(seq, slots) is not None
        assert room == self.model.room(seq, slots)
        if room:
            self.model.grow(seq, slots)
            self.model.name(seq, self.content[seq], slots)
            self.filled(seq, slots)

    def decode(self) -> None:
        """Some steps at once on one side, one by one and sequence by sequence on the other."""
        if not self.decoding:
            return
        left = min(seq.final_tokens - self.slots[seq] for seq in self.decoding)
        steps = self.real.steps_that_fit(self.random.randint(1, left))
        if not steps:
            self.preempt()
            return
        self.real.advance(steps)
        self.decoding.sort(key=lambda seq: seq.order)
        for _ in range(steps):
            for seq in self.decoding:
                self.slots[seq] += 1
                assert self.model.room(seq, self.slots[seq])
                self.model.grow(seq, self.slots[seq])
                self.model.name(seq, self.content[seq], self.slots[seq] - self.lag)
        for seq in list(self.decoding):
            seq.num_outputs += steps
            if self.slots[seq] == seq.final_tokens:
                self.leave(seq, finished=True)

    def preempt(self) -> None:
        running = self.filling + self.decoding
        if running:
            self.leave(self.random.choice(running), finished=False)

    def leave(self, seq: Sequence, *, finished: bool) -> None:
        if seq.decoding:
            seq.decoding = False
            self.real.leave(seq)
            self.decoding.remove(seq)
        elif seq in self.filling:
            self.filling.remove(seq)
        seq.finished = finished
        if finished:  # its last tokens have returned
            self.model.name(seq, self.content[seq], self.slots[seq])
        self.read_names(seq)
        self.real.release(seq)
        self.model.release(seq)
        if not finished:
            seq.num_preemptions += 1
            self.waiting.append(seq)

    def compare(self) -> None:
        real = self.real
        self.compare_blocks()
        cached = [block for block in self.model.free if block in self.model.content]
        assert real.pool.num_cached_free == len(cached)
        real.check()
        usage = real.usage(None, busy=False)
        assert sum(usage) == real.capacity_bytes
        distinct = {block for table in self.model.tables.values() for block in table}
        assert usage.allocated == len(distinct) * self.size

    def compare_tables(self) -> None:
        self.compare_counts()
        for seq, table in self.model.tables.items():
            assert self.real.blocks_of(seq) == table
        assert self.real.pool.numbers() == self.model.free

    def compare_counts(self) -> None:
        """Compare block counts, sharing and cached content of both allocators. A key identifies
        content, whichever block has it.
        """
        real, model = self.real, self.model
        for seq, table in model.tables.items():
            assert real.granted_tokens(seq) == len(table) * self.size
            leading = list(takewhile(lambda block: model.refs[block] > 1, table))
            assert real.shared_tokens(seq) == len(leading) * self.size
            carried = [
                (extent.owners, extent.is_younger)
                for extent in extents_of(seq.memory.parts[0])
                for _ in range(extent.num)
            ]
            for block, (owners, is_younger) in zip(table, carried, strict=False):
                assert model.refs[block] == owners
                assert (model.holders[model.content[block]][0] != block) == is_younger
        for seq in (*model.tables, *self.waiting):
            self.read_names(seq)
        queue = [BLANK] * real.pool.front.num
        for extent in real.pool.waiting():
            keys = range(extent.key, extent.end) if extent.key >= 0 else [extent.key] * extent.num
            queue += reversed(keys)
        assert len(queue) == len(model.free)
        for key, block in zip(queue, model.free, strict=True):
            content = model.content.get(block)
            assert (key == BLANK) == (content is None)
            assert key < 0 or self.named[key] == content
            assert key != NAMELESS or content not in self.shared

    def read_names(self, seq: Sequence) -> None:
        """What the keys of `seq` name is always the same."""
        table = seq.memory
        for index, key in enumerate(table.runs.listed(0, 512) if table else ()):
            content = self.content[seq][: (index + 1) * self.size]
            assert self.named.setdefault(key, content) == content
            if index < table.num_shareable:
                self.shared.add(content)


@pytest.mark.parametrize("rules", [V0_33.blocks, V0_11.blocks], ids=lambda rules: rules.name)
@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("counted", [True, False])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_random_operations_equal_a_naive_model_of_vllms_blocks(
    rules: BlockRules, lag: int, caching: bool, counted: bool, seed: int
) -> None:
    random = Random(seed)
    harness = Harness(random, caching=caching, lag=lag, rules=rules, counted=counted)
    operations = [
        *[harness.arrive] * 2,
        *[harness.admit] * 4,
        *[harness.extend] * 3,
        *[harness.decode] * 4,
        harness.preempt,
    ]
    for _ in range(100):
        random.choice(operations)()
        harness.compare()
