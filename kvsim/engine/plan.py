"""A plan: one engine step as the scheduler decided it, possibly repeated, and how long it takes."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kvsim.engine.pipeline import Pipeline
from kvsim.memory.ledger import Usage
from kvsim.sequence import Sequence
from kvsim.step import Chunk, StepShape
from kvsim.step_time.form import Measured, StepTime
from kvsim.step_time.stages import StageTimes

UNBOUNDED = 1 << 62  # steps, or tokens


class ScheduledChunk:
    """Tokens of one sequence outside the decode batch, computed in this step.

    prior_tokens: tokens that the scheduler counts as computed before. start_tokens, end_tokens:
    valid slots before and after the chunk. samples: the chunk reaches the last known token, so the
    step samples the next one. is_decode: the chunk is the newest token of a sequence that has
    output, so it counts as decode. drafts: draft tokens in the chunk, all but its first token.
    accepted: number of these accepted. verifies: the chunk verifies drafts, so it is no part of a
    prompt or of a recomputation.
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
        verifies: bool = False,
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
        self.verifies = verifies

    @property
    def new_slots(self) -> int:
        """Number of slots that the chunk makes valid."""
        return self.end_tokens - self.start_tokens

    @property
    def num_outputs(self) -> int:
        """Number of output tokens of the chunk."""
        return self.end_tokens - self.start_tokens if self.is_decode else int(self.samples)


class Cached:
    """Leading tokens of a waiting sequence that need no computing.

    They are prefix-cache hits or, if `swapped`, tokens swapped out to host memory before.
    """

    def __init__(self, tokens: int, swapped: bool) -> None:
        self.tokens = tokens
        self.swapped = swapped


class HostCopy(NamedTuple):
    """A copy to or from host memory before the step. usage: the memory ledger during the copy."""

    num_bytes: int
    usage: Usage


@dataclass(slots=True)
class PausedBatch:
    """Members of the decode batch that paused at the same time.

    since_ps: time of their last token. num: number of these members. apart: members of the batch
    that did not pause.
    """

    since_ps: int
    num: int
    apart: set[Sequence]


class Plan:
    """The work of one step. With `steps` > 1 the step repeats that often and only decodes.

    num_decode: members of the decode batch that get a token. context_tokens: slots that these
    attend to in the first step. decode_slots: slots that these fill in the last step. num_drafts:
    draft tokens of these members. num_verifying: chunks of decoding sequences with drafts, each
    with one output token or more. passed_over: members that get no token because the token budget
    ran out. num_paused: number of members if all of them are skipped. late: sequences that get a
    token after a pause, each with the time of its token before the pause. late_batch: members of
    the decode batch that paused together. num_late: number of both in the decode batch. failed:
    (sequence, error) of sequences that ended before this plan. left: finished sequences that freed
    their memory before this plan. rejoined: preempted sequences that decode again without a chunk,
    as their KV came back from host memory. held_ps: time for which the scheduler waited for copies
    before it could launch the step. held_booked: that part of the first stall is recorded already.
    lost: preempted sequences, each with a token in flight that is discarded, and the time of the
    token before. copies: copies over the host link, which the engine turns into stalls. stalls:
    (ps, ledger) of copies that must end before the step can start. first_ps, growth_ps: duration of
    the first step, and how much longer each step is than the one before; valid for affine_steps
    steps. ends_ps: instead of both, the end of each step, from the start of the first. outside: the
    step time is extrapolated beyond the measured range. finishing: sequences that get their last
    token in the last step. outputs: output tokens of each sequence, if steps in flight are tracked.
    abandoned: number of sequences with a token in this step that were preempted before it was
    processed.
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
        self.outputs: dict[Sequence, int] = {}
        self.finishing: list[Sequence] = []
        self.abandoned = 0
        self.steps = 1
        self.start_ps = 0
        self.first_ps = 0
        self.growth_ps = 0
        self.affine_steps = 1
        self.ends_ps: list[int] = []
        self.outside = False

    @property
    def empty(self) -> bool:
        """Whether the step computes nothing."""
        return not self.chunks and not self.num_decode

    @property
    def continues(self) -> bool:
        """Whether any sequence may decode on from a token of this step.

        Sequences that end with their token and preempted ones do not.
        """
        tokens = self.num_decode + sum(self._goes_on(chunk) for chunk in self.chunks)
        return tokens > self.abandoned

    def continues_with(self, seq: Sequence) -> bool:
        """Whether `seq`, with a token in this step, may decode on from it."""
        chunk = next((chunk for chunk in self.chunks if chunk.seq is seq), None)
        return chunk is None or self._goes_on(chunk)

    def _goes_on(self, chunk: ScheduledChunk) -> bool:
        return chunk.samples and (chunk.verifies or chunk.seq not in self.finishing)

    @property
    def new_tokens(self) -> int:
        """Number of tokens that the first step computes."""
        return self.num_decode + self.num_drafts + sum(chunk.new_tokens for chunk in self.chunks)

    @property
    def new_slots(self) -> int:
        """Number of slots that the last step makes valid."""
        chunks = self.chunks
        return self.decode_slots + (sum(chunk.new_slots for chunk in chunks) if chunks else 0)

    @property
    def stall_ps(self) -> int:
        """Total time in ps for which the step waits for copies."""
        return sum(ps for ps, _ in self.stalls) if self.stalls else 0

    def take_back(self, seq: Sequence) -> None:
        """Remove the chunk of `seq`, if it has one, as the sequence is preempted."""
        for index, chunk in enumerate(self.chunks):
            if chunk.seq is seq:
                seq.num_outputs -= chunk.num_outputs
                seq.num_computed -= chunk.new_slots
                del self.chunks[index]
                return

    def duration_ps(self, steps: int) -> int:
        """Duration in ps of the first `steps` steps, copies included."""
        if self.ends_ps and steps:
            return self.ends_ps[steps - 1]
        return self.first_ps * steps + self.growth_ps * (steps * (steps - 1) // 2)

    @property
    def end_ps(self) -> int:
        """Time in ps at which the last step ends."""
        return self.start_ps + self.duration_ps(self.steps)

    @property
    def last_start_ps(self) -> int:
        """Time in ps at which the last step starts."""
        return self.start_ps + self.duration_ps(self.steps - 1)

    def steps_by(self, elapsed_ps: int, limit: int, rest_ps: int = 0) -> int:
        """Smallest number of steps, at most `limit`, that take at least elapsed_ps.

        rest_ps: sleep after each step.
        """
        low, high = 0, limit
        while low < high:
            middle = (low + high) // 2
            if self.duration_ps(middle) + rest_ps * middle >= elapsed_ps:
                high = middle
            else:
                low = middle + 1
        return low

    def shape(self) -> StepShape:
        """The first step's shape, the input of the step-time model."""
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


class StepTimer:
    """Sets the durations of a plan's steps. Over pipeline stages, micro-batches pass one after the
    other.
    """

    def __init__(self, step_time: StepTime) -> None:
        self._step_time = step_time
        self._measured = step_time if isinstance(step_time, Measured) else None
        stages = step_time if isinstance(step_time, StageTimes) else None
        self._pipeline = None if stages is None else Pipeline(stages)

    def time(self, plan: Plan, now_ps: int, in_flight: deque[Plan]) -> None:
        """Set the durations of the plan's step and of its repetitions. in_flight: earlier plans
        with outputs not yet processed.
        """
        if self._pipeline is not None:
            from_ps = now_ps + plan.stall_ps
            # The first stage waits for tokens of a micro-batch that it ran num_stages before.
            # (vLLM 0.33, v1/worker/gpu/pp_utils.py)
            if len(in_flight) >= self._pipeline.num_stages and in_flight[0].continues:
                from_ps = max(from_ps, in_flight[0].end_ps)
            end_ps = self._pipeline.end_ps(plan.shape(), from_ps)
            plan.first_ps = max(plan.stall_ps, end_ps - plan.start_ps)
        elif plan.chunks or plan.num_drafts:
            plan.first_ps = plan.stall_ps + self._step_time.step_ps(plan.shape())
        else:
            run = self._step_time.decode_run(
                plan.num_decode, plan.context_tokens, plan.longest_context_tokens
            )
            plan.first_ps, plan.growth_ps = plan.stall_ps + run.first_ps, run.growth_ps
            plan.affine_steps = UNBOUNDED if run.steps is None else run.steps
        if self._measured is not None:
            plan.outside = self._measured.outside_domain(plan.shape())

    def time_alone(self, plan: Plan) -> None:
        """Set the durations of the repetitions of a plan that only decodes, and is alone in the
        pipeline.
        """
        run = self._step_time.decode_run(
            plan.num_decode, plan.context_tokens, plan.longest_context_tokens
        )
        if plan.first_ps == run.first_ps:  # else the first step waited for one before it
            plan.growth_ps = run.growth_ps
            plan.affine_steps = UNBOUNDED if run.steps is None else run.steps

    def ran_alone(self, plan: Plan) -> None:
        """Note that the stages have computed all steps of `plan`, which was alone in the
        pipeline.
        """
        assert self._pipeline is not None
        steps = plan.steps - 1
        if not steps:
            return  # it passed them when it was timed
        context = plan.context_tokens + steps * plan.num_decode
        longest = plan.longest_context_tokens + steps
        shape = StepShape((), plan.num_decode, context, longest)
        self._pipeline.end_ps(shape, plan.last_start_ps)

    def time_run(self, plan: Plan, shapes: Iterable[StepShape]) -> int:
        """Set the end of each further step of a plan that verifies drafts; shapes: the shape of
        each.

        Returns how many of these steps are on the same side of the step-time model's measured range
        as the first.
        """
        plan.ends_ps = [plan.first_ps]
        for shape in shapes:
            if self._measured is not None and self._measured.outside_domain(shape) != plan.outside:
                break
            plan.ends_ps.append(plan.ends_ps[-1] + self._step_time.step_ps(shape))
        return len(plan.ends_ps) - 1
