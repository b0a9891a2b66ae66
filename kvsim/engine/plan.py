"""A plan: one engine step as the scheduler decided it, which may then repeat."""

from dataclasses import dataclass
from typing import NamedTuple

from kvsim.memory.ledger import Usage
from kvsim.plumbing.errors import InputError
from kvsim.sequence import Sequence
from kvsim.step import Chunk, StepShape

UNBOUNDED = 1 << 62  # steps, or tokens
MOST_FRUITLESS = 10_000  # preemptions in a row without a token


class ScheduledChunk:
    """Tokens of one sequence that is not in the decode batch, computed in this step.

    prior_tokens: computed before, as the scheduler believes. start_tokens, end_tokens: slots that
    are valid before it and after it. samples: the chunk completes what is known, so the step
    samples its next token.
    is_decode: one token, the newest, of a sequence that has output: a decode's work, no prefill's.
    drafts: all but the first of its tokens, where these may prove wrong; so many are accepted.
    """

    def __init__(
        self,
        seq: Sequence,
        new_tokens: int,
        prior_tokens: int,
        samples: bool,
        is_decode: bool,
        start_tokens: int,
        end_tokens: int,
        drafts: int = 0,
        accepted: int = 0,
    ) -> None:
        self.seq = seq
        self.new_tokens = new_tokens
        self.prior_tokens = prior_tokens
        self.samples = samples
        self.is_decode = is_decode
        self.start_tokens = start_tokens
        self.end_tokens = end_tokens
        self.drafts = drafts
        self.accepted = accepted

    @property
    def new_slots(self) -> int:
        """Slots that it makes valid."""
        return self.end_tokens - self.start_tokens

    @property
    def num_outputs(self) -> int:
        """Tokens it puts out."""
        return self.end_tokens - self.start_tokens if self.is_decode else int(self.samples)


class Cached:
    """Leading tokens of a waiting sequence that need no computing: found in a prefix cache, or
    swapped out before.
    """

    def __init__(self, tokens: int, swapped: bool) -> None:
        self.tokens = tokens
        self.swapped = swapped


class HostCopy(NamedTuple):
    """Content on its way to host memory or back before the step; usage: the ledger meanwhile."""

    num_bytes: int
    usage: Usage


@dataclass(slots=True)
class PausedBatch:
    """Members of the decode batch whose tokens stopped coming at once: since_ps, the last one; how
    many. apart: who is a member but none of them.
    """

    since_ps: int
    num: int
    apart: set[Sequence]


class Plan:
    """What one step does; with `steps` > 1 it does so that many times, only decoding.

    num_decode: members of the decode batch that take a token; context_tokens: the slots they
    attend to in the first step; decode_slots: those they fill in the last. num_drafts: of these
    members, who then attend to their drafts too.
    num_verifying: chunks of sequences that decode, with drafts, and get a token or more.
    passed_over: members that take none, because the budget ran out; num_paused: how many there are,
    where none of them does.
    late: sequences whose token in this step follows a pause (resumed, or passed over before), with
    the time of the token before, and late_batch, all those who are late alike; num_late of them are
    members of the batch.
    failed: who ended with an error before this plan, and the error.
    left: sequences that gave their memory back before this plan, all of their work done.
    rejoined: preempted sequences that decode again in this plan without a chunk: their content came
    back from host memory.
    held_ps: for so long the scheduler itself waited, for copies, before it could launch the step;
    held_booked: what the first of its stalls is of that is in the books.
    lost: preempted sequences whose token under way is thrown away, with the time of the one before.
    copies: over the host link, which the engine turns into stalls.
    stalls: (ps, ledger) of copies that must end before the step can start.
    first_ps, growth_ps: its first step lasts first_ps, each later one growth_ps more, which holds
    for affine_steps of them; unless ends_ps says how long after the start each of them ends.
    outside: its time is extrapolated from what was measured.
    finishing: sequences whose last token this plan's last step samples.
    """

    def __init__(self) -> None:
        self.chunks: list[ScheduledChunk] = []
        self.num_decode = 0
        self.context_tokens = 0
        self.longest_context_tokens = 0
        self.decode_slots = 0
        self.num_drafts = 0
        self.num_verifying = 0
        self.admitted: list[tuple[Sequence, int, bool]] = []
        self.preempted: list[Sequence] = []
        self.passed_over: list[Sequence] = []
        self.num_paused = 0
        self.late: dict[Sequence, int] = {}
        self.late_batch: PausedBatch | None = None
        self.num_late = 0
        self.failed: list[tuple[Sequence, str]] = []
        self.left: list[Sequence] = []
        self.rejoined: list[Sequence] = []
        self.held_ps = 0
        self.held_booked = False
        self.lost: dict[Sequence, int] = {}
        self.copies: list[HostCopy] = []
        self.stalls: list[tuple[int, Usage]] = []
        self.finishing: list[Sequence] = []
        self.steps = 1
        self.start_ps = 0
        self.first_ps = 0
        self.growth_ps = 0
        self.affine_steps = 1
        self.ends_ps: list[int] = []
        self.outside = False

    @property
    def empty(self) -> bool:
        """Nothing computes."""
        return not self.chunks and not self.num_decode

    @property
    def new_tokens(self) -> int:
        """Tokens the first step computes."""
        return self.num_decode + self.num_drafts + sum(chunk.new_tokens for chunk in self.chunks)

    @property
    def new_slots(self) -> int:
        """Slots the last step fills with what is valid once it has returned."""
        chunks = self.chunks
        return self.decode_slots + (sum(chunk.new_slots for chunk in chunks) if chunks else 0)

    @property
    def stall_ps(self) -> int:
        """How long its copies take."""
        return sum(ps for ps, _ in self.stalls) if self.stalls else 0

    def take_back(self, seq: Sequence) -> None:
        """`seq` gave way: its chunk, if it has one here, is not computed."""
        for index, chunk in enumerate(self.chunks):
            if chunk.seq is seq:
                seq.num_outputs -= chunk.num_outputs
                seq.num_computed -= chunk.new_slots
                del self.chunks[index]
                return

    def duration_ps(self, steps: int) -> int:
        """How long the first `steps` steps take."""
        if self.ends_ps and steps:
            return self.ends_ps[steps - 1]
        return self.first_ps * steps + self.growth_ps * (steps * (steps - 1) // 2)

    @property
    def end_ps(self) -> int:
        """When its last step has ended."""
        return self.start_ps + self.duration_ps(self.steps)

    @property
    def last_start_ps(self) -> int:
        """When its last step starts."""
        return self.start_ps + self.duration_ps(self.steps - 1)

    def steps_by(self, elapsed_ps: int, limit: int) -> int:
        """The fewest steps, at most `limit`, that take at least `elapsed_ps`."""
        low, high = 0, limit
        while low < high:
            middle = (low + high) // 2
            if self.duration_ps(middle) >= elapsed_ps:
                high = middle
            else:
                low = middle + 1
        return low

    def shape(self) -> StepShape:
        """The first step as the step-time form sees it."""
        if not self.chunks:
            return StepShape(
                (),
                self.num_decode,
                self.context_tokens,
                self.longest_context_tokens,
                self.num_drafts,
            )
        decodes = [chunk for chunk in self.chunks if chunk.is_decode]
        contexts = [chunk.start_tokens + chunk.new_tokens for chunk in decodes]
        return StepShape(
            tuple(
                Chunk(chunk.new_tokens, chunk.prior_tokens)
                for chunk in self.chunks
                if not chunk.is_decode
            ),
            self.num_decode + len(decodes),
            self.context_tokens + sum(contexts),
            max(self.longest_context_tokens, *contexts)
            if contexts
            else self.longest_context_tokens,
            self.num_drafts + sum(chunk.drafts for chunk in decodes),
        )


class Progress:
    """Counts preemptions since the last token: sequences may take memory from each other, but not
    for ever without a token.
    """

    def __init__(self) -> None:
        self._fruitless = 0

    def check(self, plan: Plan) -> None:
        """InputError after MOST_FRUITLESS preemptions without a token, those of `plan` the last."""
        if plan.num_decode or any(chunk.samples for chunk in plan.chunks):
            self._fruitless = 0
            return
        self._fruitless += len(plan.preempted)
        if self._fruitless > MOST_FRUITLESS:
            raise InputError(
                "sequences preempt each other without ever producing a token",
                where="scheduler",
                value=f"{self._fruitless:,} preemptions in a row",
                limit=f"{MOST_FRUITLESS:,}",
                remedy="set scheduler_reserve_full_isl = true, or give the pool more memory",
            )
