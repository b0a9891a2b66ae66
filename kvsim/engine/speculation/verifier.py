"""Verification of drafts: slots that decoding sequences need in a step, tokens they output, and the
scheduler's optimistic counts until then.

As vLLM 0.33 (v1/core/sched/scheduler.py, async_scheduler.py). After every step that ends at the
newest known token k drafts are proposed. The next step verifies them: 1 + k tokens in, 1 + accepted
out. Under asynchronous scheduling a step is scheduled before the one before it is processed,
assuming that all its drafts are accepted.
"""

from typing import NamedTuple

from kvsim.engine.plan import ScheduledChunk
from kvsim.engine.speculation.acceptance import Acceptance, Row
from kvsim.sequence import Sequence
from kvsim.speculation import Method, Speculation


class Drafting:
    """The drafts of one sequence.

    accepts: numbers of accepted drafts, see Acceptance. num_verified: verifications so far.
    under_way: its last step, if that is in flight.
    """

    __slots__ = ("accepts", "num_verified", "under_way")

    def __init__(self, accepts: Row) -> None:
        self.accepts = accepts
        self.num_verified = 0
        self.under_way: ScheduledChunk | None = None


class NextStep(NamedTuple):
    """A step that verifies drafts. returned_tokens: slots of the sequence without steps in flight;
    known_tokens: tokens of the sequence without outputs in flight.
    """

    chunk: ScheduledChunk
    returned_tokens: int
    known_tokens: int


class Verifier:
    """Drafts k tokens for every decoding sequence; none without a speculation (NO_DRAFTS).

    verifies: whether there are drafts. most_tokens: limit on the tokens of a verification, 1 + k.
    prefill_lookahead: prompt tokens that the drafter reads after the end of a chunk.
    num_verifications: verifications processed so far, without padding drafts and without sequences
    that had already finished. num_drafts, num_accepted: draft tokens of these verifications, and
    the accepted ones.
    """

    def __init__(
        self, speculation: Speculation | None, acceptance: Acceptance | None, max_model_len: int
    ) -> None:
        self.num_verifications = 0
        self.num_drafts = 0
        self.num_accepted = 0
        self.rules, self.verifies, self.most_tokens = Method(), False, 1
        self.queries_per_seq = self.input_slots = self.lookahead_slots = 0
        self.prefill_lookahead = 0
        self._acceptance = acceptance
        self._max_model_len = max_model_len
        if speculation is not None:
            self.rules, self.verifies = speculation.rules, True
            self.most_tokens = 1 + speculation.tokens
            self.queries_per_seq = speculation.queries_per_seq
            self.input_slots = speculation.draft_input_slots
            self.lookahead_slots = speculation.lookahead_slots
            self.prefill_lookahead = speculation.prefill_lookahead

    def _drafting(self, seq: Sequence) -> Drafting:
        if seq.drafting is None:
            assert self._acceptance is not None
            seq.drafting = Drafting(self._acceptance.of(seq))
        drafting: Drafting = seq.drafting
        return drafting

    # --- admission and prompts ------------------------------------------------------------------

    def padding(self, cached_tokens: int, *, prefills: bool, runs: bool) -> int:
        """Number of padding drafts, never accepted, for an admission with one token to compute.

        They make it as long as a verification, so that all sequences of the step have one length.
        prefills: the step computes a running prompt. runs: the step computes any running sequence.
        """
        fits = cached_tokens + self.most_tokens + 1 <= self._max_model_len
        pads = not prefills and (runs or cached_tokens > 0) and fits
        return self.most_tokens - 1 if pads else 0

    def padding_beside(self, cached_tokens: int, *, prefills: bool, runs: bool) -> int | None:
        """Number of padding drafts as in vLLM 0.27, for an admission in a step that otherwise only
        decodes.

        None: they do not fit below max_model_len, so the admission waits.
        """
        if prefills or not runs or not self.verifies:
            return 0
        fits = cached_tokens + self.most_tokens <= self._max_model_len
        return self.most_tokens - 1 if fits else None

    def clear_of_end(self, seq: Sequence, computed: int, new_tokens: int) -> int:
        """Number of tokens of a chunk, reduced so that the drafter can read ahead in the prompt.

        The chunk ends at the last known token, or far enough before it.
        """
        left = seq.num_tokens - computed - new_tokens
        if 0 < left < self.prefill_lookahead:
            new_tokens -= self.prefill_lookahead - left
        return max(0, new_tokens)

    @property
    def reads_far_ahead(self) -> bool:
        """Whether a chunk may be deferred because it would end too close to the prompt's end."""
        return self.prefill_lookahead > 1

    # --- the life of a step ---------------------------------------------------------------------

    def next_step(self, seq: Sequence, most_tokens: int) -> NextStep | None:
        """The next step of a decoding `seq`, of at most most_tokens tokens: its newest token and
        drafts.

        None: there is no next step, since the sequence ends whatever drafts in flight are accepted,
        or is at the end of the context. The call changes nothing; a step with its memory allocated
        is applied by `take`.
        """
        if not self.verifies:
            return None
        drafting = seq.drafting or self._drafting(seq)
        way, start = drafting.under_way, seq.num_computed
        if way is None:
            prior = returned = start
            known = seq.prompt_tokens + seq.num_outputs
        else:
            prior, returned = way.start_tokens + way.new_tokens, way.start_tokens
            known = seq.prompt_tokens + seq.num_outputs - way.num_outputs
            if known >= seq.final_tokens:
                return None
        tokens = min(self.most_tokens, most_tokens, self._max_model_len - prior - 1)
        if tokens <= 0:
            return None
        drafts = tokens - 1
        end = start + 1
        accepted = 0
        if drafts:
            accepts = drafting.accepts
            accepted = min(accepts[drafting.num_verified % len(accepts)], drafts)
            end += accepted
        if end > seq.final_tokens:
            end = seq.final_tokens
        chunk = ScheduledChunk(
            seq, tokens, prior, end > start, True, start, end, drafts, accepted, verifies=True
        )
        return NextStep(chunk, returned, known)

    def take(self, step: ScheduledChunk) -> None:
        """Apply a scheduled verification to its sequence: count its slots and outputs."""
        seq = step.seq
        drafting: Drafting = seq.drafting
        drafting.num_verified += step.drafts > 0
        drafting.under_way = step
        seq.num_computed = step.end_tokens
        seq.num_outputs += step.end_tokens - step.start_tokens

    def began(self, chunk: ScheduledChunk) -> None:
        """Note that a chunk was scheduled; if it samples, it is the sequence's step in flight."""
        if self.verifies:
            self._drafting(chunk.seq).under_way = chunk if chunk.samples else None

    def undone(self, chunk: ScheduledChunk) -> None:
        """Undo a scheduled chunk: its sequence lost its memory before the step ran."""
        drafting = self._drafting(chunk.seq)
        if chunk.is_decode and chunk.drafts:
            drafting.num_verified -= 1

    def preempted(self, seq: Sequence) -> None:
        """Drop the drafts of a preempted sequence; drafts in flight will not be rolled back."""
        if self.verifies:
            self._drafting(seq).under_way = None

    def returned(self, chunk: ScheduledChunk, *, counted: bool = False) -> None:
        """Process the outputs of a chunk. counted: its drafts are counted by `lockstep_returned`
        already.
        """
        drafting: Drafting = chunk.seq.drafting
        if drafting.under_way is chunk:
            drafting.under_way = None
        if chunk.is_decode and chunk.drafts and chunk.samples and not counted:
            self.num_verifications += 1
            self.num_drafts += chunk.drafts
            self.num_accepted += chunk.accepted

    def lockstep_returned(self, num: int, accepted: int) -> None:
        """Count a processed step in which `num` sequences verified all drafts."""
        self.num_verifications += num
        self.num_drafts += num * (self.most_tokens - 1)
        self.num_accepted += accepted


NO_DRAFTS = Verifier(None, None, 0)
