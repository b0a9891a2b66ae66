"""The steps of a simulated run, as a real backend executes them: tokens, and where their KV is."""

from dataclasses import dataclass, field

from kvsim.backend.transformer.step import Copy, Span, Step
from kvsim.engine.engine import Engine
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.allocator import Allocator, AllocatorOptions
from kvsim.memory.contiguous.buffers import Buffer, Contiguous
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.sequence import Sequence
from kvsim.simulation import Simulation

MIXER = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: neighbours fall far apart


class Content:
    """Token ids below `vocab`; equal where the simulator calls tokens equal, else as random."""

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self._private: dict[str, int] = {}

    def tokens(self, seq: Sequence, start: int, end: int) -> list[int]:
        """Tokens of `seq` from `start` on, before `end`."""
        return [self._token(self._name(seq, position)) for position in range(start, end)]

    def _name(self, seq: Sequence, position: int) -> int:
        """What the simulator knows a token by; tokens that nobody can name get a name here."""
        output = position - seq.prompt_tokens
        if output >= 0 and seq.output_start is not None:
            return seq.output_start + output
        if output < 0 and seq.prompt_runs is not None:
            for first, length in seq.prompt_runs:
                if position < length:
                    return first + position
                position -= length
        owner = self._private.setdefault(seq.id, len(self._private) + 1)
        return (owner << 48) + position

    def _token(self, name: int) -> int:
        return ((name * MIXER & (1 << 64) - 1) >> 32) % self._vocab


class SpanMaker:
    """What the sequences of each plan compute, and where their KV is.

    own_buffers: each sequence has a buffer of its own, whose size a span then tells; else spans of
    contiguous allocators tell the slot where the buffer starts, and growths come as copies.
    """

    def __init__(self, vocab: int, *, own_buffers: bool = False) -> None:
        self.content = Content(vocab)
        self._own_buffers = own_buffers
        self._stood: dict[Sequence, tuple[Buffer, int]] = {}

    def spans(self, plan: Plan, scheduler: Scheduler) -> tuple[tuple[Span, ...], tuple[Copy, ...]]:
        """Of a plan just made; its copies come in an order that loses nothing."""
        allocator, copies = scheduler.allocator, list[Copy]()
        parts = [(seq, end - 1, 1) for seq, end in decoding(plan, scheduler)]
        parts += [(chunk.seq, chunk.prior_tokens, chunk.new_tokens) for chunk in plan.chunks]
        spans = [self._span(allocator, seq, start, new, copies) for seq, start, new in parts]
        return tuple(spans), in_order(copies)

    def left(self, seq: Sequence) -> None:
        """`seq` stands nowhere any more."""
        self._stood.pop(seq, None)

    def _span(
        self, allocator: Allocator, seq: Sequence, start: int, new_tokens: int, copies: list[Copy]
    ) -> Span:
        tokens = self.content.tokens(seq, start, start + new_tokens)
        if isinstance(allocator, PagedAllocator):
            return Span(seq.id, tokens, start, blocks=tuple(seq.memory.blocks))
        buffer: Buffer = seq.memory
        if len(buffer.regions) != 1:
            raise InputError("no backend store has a buffer a layer", where="allocator.kind")
        if self._own_buffers:
            return Span(seq.id, tokens, start, capacity=buffer.asked)
        slot = slot_of(allocator, buffer.regions[0])
        stood = self._stood.get(seq)
        # A sequence that was preempted comes back in another buffer, and with nothing in it.
        if stood is not None and stood[0] is buffer and stood[1] != slot:
            copies.append(Copy(stood[1], slot, start))
        self._stood[seq] = buffer, slot
        return Span(seq.id, tokens, start, slot=slot)


@dataclass(slots=True)
class StepRecorder:
    """An engine's observer that keeps every step. Needs plans of one step each (max_steps = 1).

    steps: what a `Runner`, or a replay, takes; begin_ps: when each began.
    """

    vocab: int
    most_steps: int | None = None
    steps: list[Step] = field(default_factory=list)
    begin_ps: list[int] = field(default_factory=list)
    engine: Engine = field(init=False)
    _maker: SpanMaker = field(init=False)
    _known: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._maker = SpanMaker(self.vocab)

    def planning(self, now_ps: int) -> None:
        """Nothing is decided yet."""

    def planned(self, plan: Plan, now_ps: int) -> None:
        """Keep the step with the places its sequences have now."""
        full = self.most_steps is not None and len(self.steps) >= self.most_steps
        if plan.empty or full:
            return
        spans, copies = self._maker.spans(plan, self.engine.scheduler)
        prefixes = {}
        for chunk in plan.chunks:
            seq = chunk.seq
            if seq.id not in self._known:
                self._known.add(seq.id)
                prefixes[seq.id] = self._maker.content.tokens(seq, 0, chunk.prior_tokens)
        self.steps.append(Step(spans, copies, prefixes))
        self.begin_ps.append(plan.start_ps)

    def finished(self, plan: Plan, now_ps: int) -> None:
        """Those that left stand nowhere."""
        for seq in plan.finishing:
            self._maker.left(seq)

    def idle(self, now_ps: int, *, stalled: bool) -> bool:
        """It never submits anything."""
        return False


def decoding(plan: Plan, scheduler: Scheduler) -> list[tuple[Sequence, int]]:
    """Members of the batch that take a token in a plan just made, with the slots they then have:
    those that stay in it, and those whose last token this is.
    """
    others = {chunk.seq for chunk in plan.chunks} | set(plan.held)
    found = [
        (seq, scheduler.batch.slots(seq))
        for seq in scheduler.running
        if seq.decoding and seq not in others
    ]
    found += [(seq, seq.final_tokens) for seq in plan.finishing if seq not in others]
    if len(found) != plan.num_decode:
        raise InvariantError(f"{len(found)} sequences decode where {plan.num_decode} should")
    return found


def slot_of(allocator: Allocator, address: int) -> int:
    """The slot at a byte address; InputError where buffers do not begin at whole slots."""
    slot, rest = divmod(address, allocator.token_bytes)
    if rest:
        raise InputError(
            "buffers begin between slots",
            where="allocator.placement",
            value=f"address {address}",
            limit=f"multiples of {allocator.token_bytes} bytes",
            remedy="choose a model whose KV bytes per token divide the placement's unit",
        )
    return slot


def in_order(copies: list[Copy]) -> tuple[Copy, ...]:
    """Copies in an order in which none overwrites what another still has to read.

    There is one: the simulator made them one after the other, each into memory that was free.
    """
    left, ordered = list(copies), []
    while left:
        for copy in left:
            others = [other for other in left if other is not copy]
            if not any(_overlap(copy, other) for other in others):
                break
        else:
            raise InvariantError(f"copies that overwrite each other: {left}")
        left.remove(copy)
        ordered.append(copy)
    return tuple(ordered)


def _overlap(copy: Copy, other: Copy) -> bool:
    """Whether `copy` writes slots that `other` reads."""
    return copy.target < other.source + other.slots and other.source < copy.target + copy.slots


def record_steps(
    simulation: Simulation, options: AllocatorOptions, vocab: int, most_steps: int | None = None
) -> tuple[StepRecorder, int, int]:
    """Run `simulation` under one allocator; its steps, and the size of the store they need:
    (blocks, slots a block), or (slots, 0) for a contiguous one.

    The scenario's max_steps must be 1. most_steps: keep no more. InputError for an allocator whose
    sequences do not lie in blocks of one pool or in one contiguous buffer each.
    """
    if simulation.scenario.max_steps != 1:
        raise InputError("a replay needs every step", where="max_steps", limit=1)
    allocator = options.build(simulation.memory_spec())
    recorder = StepRecorder(vocab, most_steps)
    if isinstance(allocator, PagedAllocator):
        size = allocator.pool.num_blocks, allocator.block_size
    elif isinstance(allocator, Contiguous):
        size = allocator.capacity_bytes // allocator.token_bytes, 0
    else:
        raise InputError("no backend store keeps memory in this way", where="allocator.kind")
    simulation.run(options, "replay", observer=recorder)
    return recorder, *size
