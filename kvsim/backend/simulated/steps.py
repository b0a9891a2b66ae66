"""The plans of a scheduler as steps of the backend: tokens, and where their KV is."""

from typing import NamedTuple

from kvsim.backend.simulated.content import VocabTokens
from kvsim.backend.simulated.copies import in_order
from kvsim.backend.step import Copy, HostSwap, Move, TokenSpan
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.allocator import Allocator
from kvsim.memory.options import StoreKind
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.sequence import Sequence


class Stand(NamedTuple):
    """Location of a sequence's KV when the sequence last ran, with the fields of a `TokenSpan`."""

    blocks: tuple[int, ...] = ()
    slot: int | None = None
    capacity: int | None = None


class StepMaker:
    """The work of each plan for a real engine: tokens that sequences compute, addresses of their
    KV, and the copies before it.

    store: the kind of store the steps are for; a span has the addresses for that store. Call it for
    every plan in turn: `preempted` right after it is made (a plan may preempt and compute nothing),
    then `spans` if it computes, and `left` when a sequence has finished.
    """

    def __init__(self, vocab: int, store: StoreKind) -> None:
        self.content = VocabTokens(vocab)
        self._store = store
        self._stands: dict[Sequence, Stand] = {}
        self._outs: list[HostSwap] = []  # on their way to host memory with the next step
        self._swapped: dict[Sequence, int] = {}

    def preempted(self, plan: Plan, scheduler: Scheduler) -> list[Sequence]:
        """Note the swapped-out sequences of a new plan; returns preempted ones that will
        recompute.
        """
        recompute = []
        for seq in plan.preempted:
            stand = self._stands.pop(seq, None)
            tokens = scheduler.preemption.kept_tokens(seq)
            if not tokens:
                recompute.append(seq)
                continue
            if stand is None:
                raise InvariantError(f"{seq} was swapped out before it ran")
            self._outs.append(HostSwap(seq.id, tokens, True, *stand))
            self._swapped[seq] = tokens
        return recompute

    def spans(
        self, plan: Plan, scheduler: Scheduler
    ) -> tuple[tuple[TokenSpan, ...], tuple[Move, ...]]:
        """Spans of a plan that computes, and what moves before them, in order: out to host memory,
        within the device, and back in.
        """
        allocator, copies = scheduler.allocator, list[Copy]()
        outs, self._outs = self._outs, []
        ins = [
            HostSwap(seq.id, self._swapped.pop(seq), False, *self._stand(allocator, seq))
            for seq, _, _ in plan.admitted
            if seq in self._swapped
        ]
        parts = [(seq, end - 1, 1) for seq, end in decoding(plan, scheduler)]
        parts += [(chunk.seq, chunk.prior_tokens, chunk.new_tokens) for chunk in plan.chunks]
        spans = [self._span(allocator, seq, start, new, copies) for seq, start, new in parts]
        return tuple(spans), (*outs, *in_order(copies), *ins)

    def left(self, seq: Sequence) -> None:
        """Forget `seq`, which has finished."""
        self._stands.pop(seq, None)
        self._swapped.pop(seq, None)

    def _span(
        self, allocator: Allocator, seq: Sequence, start: int, new_tokens: int, copies: list[Copy]
    ) -> TokenSpan:
        stand, stood = self._stand(allocator, seq), self._stands.get(seq)
        if stood is not None and stood.slot is not None and stood.slot != stand.slot:
            assert stand.slot is not None
            copies.append(Copy(stood.slot, stand.slot, start))
        self._stands[seq] = stand
        return TokenSpan(seq.id, self.content.tokens(seq, start, start + new_tokens), start, *stand)

    def _stand(self, allocator: Allocator, seq: Sequence) -> Stand:
        place = allocator.place(seq)
        if self._store == "blocks":
            return Stand(blocks=tuple(place.blocks))
        if self._store == "buffers":
            return Stand(capacity=place.slots)
        return Stand(slot=slot_of(allocator, place.address))


def decoding(plan: Plan, scheduler: Scheduler) -> list[tuple[Sequence, int]]:
    """Members of the batch that take a token in a plan just made, with the slots they then have.

    They are those that stay in it, and those with their last token.
    """
    others = {chunk.seq for chunk in plan.chunks} | set(plan.passed_over)
    found = [
        (seq, scheduler.batch.slots(seq))
        for seq in scheduler.running
        if seq.decoding and seq not in others and not plan.num_paused
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
            remedy="choose a model with KV bytes per token that divide the placement's unit",
        )
    return slot
