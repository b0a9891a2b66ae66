"""Records the steps of a simulated run, to replay them on a real KV store."""

from dataclasses import dataclass, field

from evidence.prove.step import Step
from kvsim.backend.simulated.steps import StepMaker
from kvsim.backend.simulated.stores import store_kind
from kvsim.backend.simulated.tier_copies import ReplayedCopies
from kvsim.backend.step import TierCopy
from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.options import AllocatorOptions, StoreKind
from kvsim.plumbing.errors import InputError
from kvsim.simulation import Simulation


@dataclass(slots=True)
class StepRecorder(Observer):
    """An engine observer that records every step. Plans must have one step each (max_steps = 1).

    vocab: number of token ids of the model. store: kind of KV store for the replay. most_steps:
    record at most this many; None for all. steps: the recorded steps, in the form of
    `DecoderRunner`. begin_ps: start of each step in picoseconds. scheduler: the scheduler that
    planned them. host_slots: number of blocks in host memory.
    """

    vocab: int
    store: StoreKind
    most_steps: int | None = None
    steps: list[Step] = field(default_factory=list)
    begin_ps: list[int] = field(default_factory=list)
    scheduler: Scheduler = field(init=False)
    host_slots: int = 0
    _maker: StepMaker = field(init=False)
    # By sequence, how many of its first tokens the steps have named.
    _named_tokens: dict[str, int] = field(default_factory=dict)
    _tier: ReplayedCopies | None = None
    _copies: list[TierCopy] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._maker = StepMaker(self.vocab, self.store)

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        """Subscribe to the connector's copies, before the first plan."""
        if self._tier is None:
            self._tier = ReplayedCopies(scheduler)
            self.host_slots = self._tier.num_slots

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """Record the step with the current memory places of its sequences."""
        self.scheduler = scheduler
        if self.most_steps is not None and len(self.steps) >= self.most_steps:
            return
        self._maker.preempted(plan, scheduler)
        assert self._tier is not None
        self._copies += self._tier.take()
        if plan.empty:
            return
        spans, moves = self._maker.spans(plan, scheduler)
        copies, self._copies = self._copies, []
        prefixes = {}
        for chunk in plan.chunks:
            seq = chunk.seq
            named = self._named_tokens.get(seq.id)
            # A preempted sequence may find more in the cache than it had computed itself.
            if named is None or chunk.prior_tokens > named:
                prefixes[seq.id] = self._maker.content.tokens(seq, 0, chunk.prior_tokens)
            self._named_tokens[seq.id] = max(named or 0, chunk.prior_tokens + chunk.new_tokens)
        self.steps.append(Step(spans, (*copies, *moves), prefixes))
        self.begin_ps.append(plan.start_ps)

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        """Record that finished sequences free their places."""
        for seq in plan.finishing:
            self._maker.left(seq)


def record_steps(
    simulation: Simulation, options: AllocatorOptions, vocab: int, most_steps: int | None = None
) -> StepRecorder:
    """Run `simulation` under one allocator and record its steps.

    The scenario's max_steps must be 1. most_steps: record at most this many. InputError for an
    allocator that no KV store supports. Buffers of torch's allocator are recorded at their
    simulated addresses, so that a replay tests these.
    """
    if simulation.scenario.max_steps != 1:
        raise InputError("a replay needs every step", where="max_steps", limit=1)
    kind = store_kind(options)
    recorder = StepRecorder(vocab, "slots" if kind == "buffers" else kind, most_steps)
    simulation.run(options, "replay", observer=recorder)
    return recorder
