"""Output counts of requests: generated, in flight, and expected. SGLang budgets memory by them.

Under the overlap schedule a pass precedes the outputs of the previous step, which are in flight. A
retraction may discard one.
"""

from collections.abc import Container, Iterable
from math import ceil

from kvsim.engine.decode_batch import DecodeBatch
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.sglang.budget import CLIP_MAX_NEW_TOKENS
from kvsim.sequence import Sequence

INITIAL = 0.7
FLOOR = 0.14  # of the initial ratio
DECAY_STEPS = 600
RETRACT_STEPS = 20  # decode steps that a retraction makes room for


class InFlight:
    """The plans in flight, oldest first. elsewhere: with pipeline stages, these plans are of other
    micro-batches than the one that is scheduled next, so its requests have no token in flight.
    """

    def __init__(self, *, elsewhere: bool = False) -> None:
        self._elsewhere = elsewhere
        self._plans: list[Plan] = []
        self._all_decoders = False  # a token of every decoder, or
        self._begun: set[Sequence] = set()  # of these
        self._joined: set[Sequence] = set()  # but of none of these

    def __bool__(self) -> bool:
        return bool(self._plans)

    def scheduled(self, plan: Plan) -> None:
        """Add `plan`, which was launched."""
        self._plans.append(plan)

    def returned(self, plan: Plan) -> None:
        """Remove `plan`, as its outputs are processed."""
        self._plans = [other for other in self._plans if other is not plan]

    def settle(self) -> None:
        """Begin a pass: the tokens of the newest plan are in flight during it."""
        last = self._plans[-1] if self._plans and not self._elsewhere else None
        self._all_decoders = last is not None and last.num_decode > 0
        self._begun = {chunk.seq for chunk in last.chunks} if last else set()
        self._joined.clear()

    @property
    def end_ps(self) -> int:
        """Time in ps at which the newest plan has computed; 0 if nothing is in flight."""
        return self._plans[-1].end_ps if self._plans else 0

    def joined(self, seq: Sequence) -> None:
        """`seq`, with a prompt computed on another engine, decodes from this pass on: it has no
        token in flight.
        """
        self._joined.add(seq)

    def has_token_of(self, seq: Sequence) -> bool:
        """Whether a token of the running `seq` is in flight."""
        return seq not in self._joined and (self._all_decoders or seq in self._begun)

    @property
    def unreturned_tokens(self) -> tuple[bool, set[Sequence]]:
        """(whether every decoding sequence has a token in flight, the sequences with a chunk in
        flight).
        """
        return self._all_decoders, self._begun

    def last_tokens(self, among: Container[Sequence]) -> list[Sequence]:
        """Sequences of `among` with their last token in flight; the scheduler does not know yet
        that they end.
        """
        if not self._plans or self._elsewhere:
            return []
        return [seq for seq in self._plans[-1].finishing if seq in among]

    def lose_token(self, seq: Sequence, plan: Plan) -> None:
        """Discard the token in flight of `seq`, which `plan` retracts: the step computes it, but no
        request gets it.
        """
        last = self._plans[-1]
        seq.num_outputs -= 1
        seq.num_computed -= 1
        last.finishing = [other for other in last.finishing if other is not seq]
        for chunk in last.chunks:
            if chunk.seq is seq:
                chunk.samples = False
        if seq in last.late:
            plan.lost[seq] = last.late.pop(seq)
        elif last.late_batch is not None and seq not in last.late_batch.apart:
            plan.lost[seq] = last.late_batch.since_ps
            last.late_batch.num -= 1
        else:
            plan.lost[seq] = last.last_start_ps
            last.num_late += seq not in self._begun  # of the batch: its gap is not counted


class Outputs:
    """Output counts of waiting and running requests.

    in_flight: the plans in flight. wishes: max_new_tokens of each request, limited by the engine.
    all_counts: number of requests with ignore_eos, to which the new-token ratio does not apply.
    """

    def __init__(self, batch: DecodeBatch, in_flight: InFlight) -> None:
        self._batch, self.in_flight = batch, in_flight
        self.wishes: dict[Sequence, int] = {}
        self.all_counts = 0

    def add(self, seq: Sequence, max_new_tokens: int) -> None:
        """Add a new `seq`."""
        self.wishes[seq] = max_new_tokens
        self.all_counts += seq.request.ignore_eos

    def remove(self, seq: Sequence) -> None:
        """Remove a sequence that has left."""
        del self.wishes[seq]
        self.all_counts -= seq.request.ignore_eos

    def of(self, seq: Sequence) -> int:
        """Number of output tokens that the scheduler has processed of a running request.

        With overlap scheduling this is fewer than the device has sampled.
        """
        outputs = seq.num_outputs
        if seq.decoding:
            outputs = self._batch.slots(seq) - seq.prompt_tokens + 1
        return outputs - self.in_flight.has_token_of(seq)

    def end_by_length(self, seq: Sequence) -> bool:
        """Whether `seq` generates all of its max_new_tokens."""
        return seq.output_tokens >= self.wishes[seq]

    def held_back(self, decoders: Iterable[Sequence], ratio: float) -> float:
        """Expected output tokens of `decoders`: what each may still generate, at most 4,096, times
        the ratio.

        With ignore_eos the ratio does not apply. Summed in their order, as SGLang does.
        """
        wishes, clock, held = self.wishes, self._batch.clock, 0.0
        all_decoders, begun = self.in_flight.unreturned_tokens
        for seq in decoders:
            outputs = seq.num_outputs
            if seq.decoding:  # as `of`, which is too slow for all that run at every pass
                outputs = seq.base + clock - seq.prompt_tokens + 1
            rest = wishes[seq] - outputs + (all_decoders or seq in begun)
            if rest > CLIP_MAX_NEW_TOKENS:
                rest = CLIP_MAX_NEW_TOKENS
            held += rest if seq.request.ignore_eos else rest * ratio
        return held

    def most_held_back(self, num: int, ratio: float) -> int:
        """Upper bound of `held_back` for `num` decoding requests."""
        return num * ceil(CLIP_MAX_NEW_TOKENS * (1.0 if self.all_counts else ratio))

    def by_retraction(self, decoders: Iterable[Sequence]) -> list[Sequence]:
        """`decoders` in reverse order of retraction.

        The one retracted first is last: it has the fewest outputs, then the longest prompt, then
        the latest place in the batch.
        """
        return sorted(decoders, key=lambda s: (self.of(s), -s.prompt_tokens), reverse=True)


class NewTokenRatio:
    """The new-token ratio: which share of the output that running requests may still generate
    counts against new ones (managers/scheduler_components/new_token_ratio_tracker.py).

    Floats are computed in SGLang's order of operations, so that they are equal to the last bit.
    value: the ratio now. It falls with every decode step, rises at a retraction, and is reset when
    the engine is idle.
    """

    def __init__(self, conservativeness: float) -> None:
        self._initial = min(INITIAL * conservativeness, 1.0)
        self._floor = min(self._initial * FLOOR, 1.0)
        self._decay = (self._initial - self._floor) / DECAY_STEPS
        self.value = self._initial

    def decay(self, steps: int = 1) -> None:
        """Lower the ratio after `steps` decode steps without a retraction, but not below the
        floor.
        """
        for _ in range(steps):
            if self.value == self._floor:
                break
            self.value = max(self.value - self._decay, self._floor)

    def retracted(self, outputs: int, max_new_tokens: int, num: int) -> None:
        """Set the ratio after a retraction. `num` requests remain, with `outputs` tokens generated
        of max_new_tokens in sum.
        """
        self.value = min(1.0, (outputs + RETRACT_STEPS * num) / (max_new_tokens + 1))

    def idle(self) -> None:
        """Reset the ratio: nothing waits or runs."""
        self.value = self._initial
