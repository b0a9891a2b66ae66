"""The contiguous allocators, played by a small scheduler on random requests."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.buffers import MIXED, PLAIN, TOKEN, admit, build, sequence

from kvsim.memory.ledger import OVERPROVISIONED, RESERVED, USED, Usage, check_sum
from kvsim.memory.parts import bytes_by_name
from kvsim.plumbing.errors import InputError
from kvsim.request import Request


class Scheduler:
    """First come, first served, prompts in chunks, the last admitted preempted: enough to drive an
    allocator by the rules of its promise. It checks the ledger at every event and writes it down.

    max_steps: decode steps taken at once, at most.
    """

    def __init__(self, allocator, max_steps=10**9, chunk=10**9, check_each=True):
        self.allocator, self.max_steps, self.chunk = allocator, max_steps, chunk
        self.waiting, self.running = [], []
        self.admitted = self.turned_away = self.preemptions = self.finished = 0
        self.check_each = check_each

    def usage(self):
        head = self.waiting[0] if self.waiting else None
        usage = self.allocator.usage(head, busy=bool(self.running))
        check_sum(usage, self.allocator.capacity_bytes)
        if self.check_each:
            self.allocator.check()
        return usage

    def admit(self):
        """Admit requests from the head of the queue while they fit, and compute their prompts."""
        while self.waiting:
            seq = self.waiting[0]
            before = self.usage()
            first = min(seq.num_tokens, self.chunk)
            if not admit(self.allocator, seq, first):
                assert self.usage() == before
                assert before.idle == 0
                self.turned_away += 1
                return
            self.waiting.pop(0)
            self.admitted += 1
            seq.order = self.admitted
            self.running.append(seq)
            for tokens in range(first + self.chunk, seq.num_tokens + self.chunk, self.chunk):
                if seq in self.running:
                    self.make_room(seq, min(tokens, seq.num_tokens))
            if seq in self.running:
                self.computed(seq, seq.num_tokens)
            self.usage()

    def computed(self, seq, tokens):
        seq.num_outputs += 1
        if tokens == seq.final_tokens:
            self.finish(seq)
        else:
            self.allocator.join(seq, tokens)
            seq.decoding, seq.num_computed = True, tokens

    def finish(self, seq):
        self.allocator.release(seq)
        self.running.remove(seq)
        self.finished += 1

    def make_room(self, seq, tokens):
        """Extend, preempting from the end until it works or `seq` itself is the victim."""
        while seq in self.running:
            before = self.usage()
            if growth := self.allocator.extend(seq, tokens):
                self.usage()
                growth.end()
                self.usage()
                return
            assert self.usage() == before
            self.preempt(self.running[-1])

    def preempt(self, victim):
        if victim.decoding:
            self.allocator.leave(victim)
            victim.decoding = False
        self.allocator.release(victim)
        self.running.remove(victim)
        self.waiting.insert(0, victim)
        self.preemptions += 1

    def decode(self, steps):
        """So many decode steps of all that decode."""
        while steps and any(seq.decoding for seq in self.running):
            allocator = self.allocator
            left = min(seq.final_tokens - seq.num_computed for seq in self.running if seq.decoding)
            run = allocator.steps_that_fit(min(steps, self.max_steps, left))
            if not run:
                for seq in allocator.must_extend():
                    if seq in self.running:
                        self.make_room(seq, seq.num_computed + 1)
                assert not allocator.must_extend()
                if not any(seq.decoding for seq in self.running):
                    return
                run = 1
            before = self.usage()
            course = allocator.advance(run)
            after = list(before)
            for source, target, unit_bytes, slope, jumps, *_ in course.moves:
                assert (source, target) == ((RESERVED, USED) if slope else (USED, OVERPROVISIONED))
                after[source] -= unit_bytes * (slope * run + jumps)
                after[target] += unit_bytes * (slope * run + jumps)
            assert self.usage() == Usage(*after)
            steps -= run
            for seq in [seq for seq in self.running if seq.decoding]:
                seq.num_computed += run
                seq.num_outputs += run
                if seq.num_computed == seq.final_tokens:
                    allocator.leave(seq)
                    seq.decoding = False
                    self.finish(seq)
            self.usage()


KINDS = [
    ("max-buffer", {"reserve": "model-max"}),
    ("max-buffer", {"reserve": "declared-max", "placement": "best-fit"}),
    ("max-buffer", {"reserve": "pow2", "placement": "buddy"}),
    ("max-buffer", {"reserve": "exact", "placement": "next-fit"}),
    ("max-buffer", {"reserve": "exact", "placement": {"kind": "fixed-slots", "slot_tokens": 99}}),
    ("doubling", {"initial_tokens": 8}),
    ("doubling", {"initial_tokens": 5, "factor": 1.5, "placement": "next-fit"}),
    ("doubling", {"initial_tokens": 16, "extend_in_place": True, "placement": "best-fit"}),
    ("doubling", {"initial_tokens": 16, "placement": {"kind": "buddy", "unit_tokens": 4}}),
    ("doubling", {"initial_tokens": 16, "extend_in_place": True, "placement": "buddy"}),
    ("doubling", {"initial_tokens": 32, "allocation_latency_us": 7, "placement": "torch-caching"}),
    ("concatenation", {"placement": "first-fit"}),
    ("concatenation", {"placement": "buddy"}),
    ("concatenation", {}),
    (
        "concatenation",
        {"placement": {"kind": "torch-caching", "expandable_segments": True}},
    ),
]


def _on_torch(kind, options):
    """Whether buffers lie in torch's segments, of which the smallest has 512 tokens here."""
    return "torch-caching" in str(options) or (kind == "concatenation" and not options)


def requests(rng, count):
    for order in range(count):
        output = rng.randint(1, 60)
        declared = rng.choice([None, output, output + rng.randint(0, 40)])
        yield sequence(rng.randint(1, 90), output, order, max_tokens=declared)


def play(allocator, seed, **options):
    """Random admissions and decode steps until all are served; the ledgers along the way."""
    rng = random.Random(seed)
    scheduler = Scheduler(allocator, **options)
    empty = scheduler.usage()
    ledgers = []
    pending = [seq for seq in requests(rng, 12) if allocator.refusal(seq.request) is None]
    accepted = len(pending)
    while pending or scheduler.waiting or scheduler.running:
        for _ in range(rng.randint(0, 4)):
            if pending:
                scheduler.waiting.append(pending.pop())
        scheduler.admit()
        if rng.random() < 0.2 and scheduler.running:  # passed over in a step
            seq = rng.choice(scheduler.running)
            allocator.leave(seq)
            allocator.join(seq, seq.num_computed)
        scheduler.decode(rng.randint(1, 30))
        ledgers.append(scheduler.usage())
    assert scheduler.finished == accepted
    assert scheduler.usage() == empty
    return ledgers, scheduler.turned_away, scheduler.preemptions, allocator.copied_bytes


@pytest.mark.parametrize(("kind", "options"), KINDS)
@given(
    seed=st.integers(0, 10**6),
    tokens=st.integers(100, 900),
    layout=st.sampled_from([PLAIN, MIXED]),
    chunk=st.sampled_from([7, 10**9]),
)
@settings(max_examples=8, deadline=None)
def test_k_steps_and_single_steps_have_the_same_ledger(kind, options, seed, tokens, layout, chunk):
    """All requests that are not refused finish, the pool is empty again, and it does not matter in
    how many steps at a time."""
    tokens = max(tokens, 600 if _on_torch(kind, options) else 0)

    def fresh():
        return build(kind, tokens, layout, max_model_len=160, odd_bytes=12_345, **options)

    leaps = play(fresh(), seed, chunk=chunk)
    assert leaps == play(fresh(), seed, chunk=chunk, max_steps=1, check_each=False)


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_contiguous_allocators_are_tested_under_memory_pressure(kind, options):
    """The random runs do reach queues, and preemption where buffers grow."""
    tokens = 512 if _on_torch(kind, options) else 200
    queued = preempted = copied_bytes = 0
    for seed in range(8):
        allocator = build(kind, tokens, max_model_len=160, **options)
        _, turned_away, preemptions, copied = play(allocator, seed, check_each=False)
        queued += turned_away
        preempted += preemptions
        copied_bytes += copied
    assert queued
    growing = kind != "max-buffer"
    assert (bool(preempted), bool(copied_bytes)) == (growing, growing)


# --- refusal -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "options"), KINDS)
@given(
    tokens=st.integers(520, 8000),
    prompt=st.integers(1, 150),
    output=st.integers(1, 150),
    layout=st.sampled_from([PLAIN, MIXED]),
)
@settings(max_examples=15, deadline=None)
def test_accepted_request_finishes_alone(kind, options, tokens, prompt, output, layout):
    """...by preempting itself if need be, at most once a buffer; what is refused could not."""
    tokens = tokens if _on_torch(kind, options) else tokens // 20
    try:
        allocator = build(kind, tokens, layout, **options)
    except InputError:  # the pool is below one slot, segment or buddy
        return
    seq = sequence(prompt, output)
    if allocator.refusal(seq.request) is None:
        scheduler = Scheduler(allocator)
        scheduler.waiting.append(seq)
        while scheduler.waiting or scheduler.running:
            preemptions, outputs = scheduler.preemptions, seq.num_outputs
            scheduler.admit()
            scheduler.decode(1000)
            assert seq.num_outputs > outputs
            assert scheduler.preemptions <= preemptions + 1
    elif prompt + output <= 256:
        seq.num_outputs = output - 1
        assert not admit(allocator, seq)  # its last buffer has no place in the empty pool


def test_refusals_give_value_limit_and_remedy():
    allocator = build("max-buffer", 200)
    assert str(allocator.refusal(Request("a", 0, 200, 57))) == (
        "prompt and output exceed the model's maximum length: 257 tokens, limit 256; "
        "shorten the request or raise max_model_len"
    )
    refusal = allocator.refusal(Request("a", 0, 10, 10))
    assert (refusal.value, refusal.limit, refusal.unit) == (256, 200, "contiguous tokens")
    declared = build("max-buffer", 300, reserve="declared-max")
    refusal = declared.refusal(Request("a", 0, 10, 11, max_tokens=10))
    assert (refusal.value, refusal.limit) == (11, 10)
    doubling = build("doubling", 200, initial_tokens=16)
    refusal = doubling.refusal(Request("a", 0, 100, 30))  # 129 slots: a buffer of 256
    assert (refusal.value, refusal.limit) == (256, 200)
    assert doubling.refusal(Request("a", 0, 100, 29)) is None


def test_request_of_exactly_the_free_bytes_is_placed():
    """A head that waits for another reason leaves the rest idle, neither short nor in holes."""
    allocator = build("max-buffer", 100, reserve="exact")
    assert admit(allocator, sequence(50, 10))
    exactly, longer = sequence(30, 10, 1), sequence(30, 11, 2)
    free = allocator.capacity_bytes * 40 // 100
    told = allocator.usage(exactly, busy=True)
    assert (told.external, told.short, told.idle) == (0, 0, free)
    told = allocator.usage(longer, busy=True)
    assert (told.external, told.short, told.idle) == (0, free, 0)


@pytest.mark.parametrize("kind", ["max-buffer", "doubling", "concatenation"])
def test_recurrent_states_are_a_part_of_used(kind):
    """The state of a recurrent layer does not grow with its sequence."""
    allocator = build(kind, 1000, MIXED)
    state = next(group.state_bytes for group in MIXED.groups if group.state_bytes)
    for order, prompt in enumerate((10, 13)):
        assert admit(allocator, sequence(prompt, 5, order))
    told = allocator.usage(None, busy=True)
    assert bytes_by_name(allocator.parts)["states"] == 2 * state
    assert told.used == (10 + 13) * TOKEN + 2 * state
