"""The fitted step time, in integer picoseconds.

    t = g(T) + c_nd[m]*N + c_ctx[m]*S + c_long[m]*E + c_pa*A + c_pk*P

T tokens in the step (with the drafted ones to verify), N decoding sequences, S the sum of their
contexts. E is by how much the longest context exceeds their mean (a batch waits for its longest
sequence). A is the query-key pairs of the prefill chunks, P the KV tokens they read. m
distinguishes a pure decode step from one with a prefill chunk, which shares its attention kernels
with the decodes.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from kvsim.plumbing.options import Options
from kvsim.plumbing.units import ceil_div
from kvsim.step import StepShape
from kvsim.step_time.calibrated import TOKEN_COSTS
from kvsim.step_time.calibrated.token_cost import TokenCost
from kvsim.step_time.correction import NONE, Correction
from kvsim.step_time.form import DecodeRun

Ps = Annotated[int, Field(ge=0)]


def _parse(value: Any) -> Any:
    return value if isinstance(value, TokenCost) else TOKEN_COSTS.parse(value, "token_cost")


def _dump(value: TokenCost) -> dict[str, Any]:
    return {"kind": TOKEN_COSTS.name_of(value), **value.model_dump(mode="json")}


class Terms(Options):
    """The linear terms in addition to g(T), ps per unit; `_mixed` where a prefill chunk shares the
    step.
    """

    decode_seq_ps: Ps = 0
    decode_seq_mixed_ps: Ps = 0
    context_token_ps: Ps = 0
    context_token_mixed_ps: Ps = 0
    longest_excess_token_ps: Ps = 0
    longest_excess_token_mixed_ps: Ps = 0
    attention_pair_ps: Ps = 0
    prefill_context_token_ps: Ps = 0

    def scaled(self, correction: Correction) -> "Terms":
        """The terms, each scaled by the correction."""
        return Terms(**{name: correction.scaled(ps) for name, ps in self})


def longest_excess(shape: StepShape) -> int:
    """Tokens by which the longest context exceeds the mean one, rounded up; 0 if it is not known.

    In a decode run both grow by one a step, so the excess is constant.
    """
    if not shape.longest_context_tokens or not shape.num_decode:
        return 0
    return shape.longest_context_tokens - ceil_div(shape.context_tokens, shape.num_decode)


class Formula(Options):
    """g(T) and the terms, as a calibration file keeps them."""

    token_cost: Annotated[TokenCost, BeforeValidator(_parse), PlainSerializer(_dump)]
    terms: Terms


class FormulaTime:
    """A formula, corrected, as a `StepTime`; g stays positive with the correction."""

    __slots__ = ("_constant_ps", "_correction", "_cost", "_terms", "_token_each_ps", "_token_ps")

    def __init__(
        self, formula: Formula, correction: Correction = NONE, *, tabulated_tokens: int = 0
    ) -> None:
        self._terms = formula.terms.scaled(correction)
        self._cost = formula.token_cost.scaled(correction)
        self._constant_ps, self._token_each_ps = correction.constant_ps, correction.token_ps
        self._correction = correction
        self._token_ps = tuple(map(self._g_ps, range(tabulated_tokens + 1)))

    def step_ps(self, shape: StepShape) -> int:
        """Duration of a step in ps; 0 for an empty one."""
        chunks, num_decode, context = shape.chunks, shape.num_decode, shape.context_tokens
        if not chunks:
            return self._decode_ps(shape) if num_decode else 0
        new_tokens = pairs = read_tokens = 0
        for new, prior in chunks:
            new_tokens += new
            pairs += new * prior + new * (new + 1) // 2
            read_tokens += new + prior
        terms = self._terms
        ps = (
            self._tokens_ps(num_decode + shape.num_drafts + new_tokens)
            + (self._correction.chunk_ps + self._correction.sequence_ps) * len(chunks)
            + self._correction.prompts_ps
            + self._correction.prompt_token_ps * new_tokens
            + terms.attention_pair_ps * pairs
            + terms.prefill_context_token_ps * read_tokens
        )
        if num_decode:
            ps += (
                (terms.decode_seq_mixed_ps + self._correction.sequence_ps) * num_decode
                + terms.context_token_mixed_ps * context
                + terms.longest_excess_token_mixed_ps * longest_excess(shape)
            )
        return ps

    def decode_run(
        self, num_decode: int, context_tokens: int, longest_context_tokens: int = 0
    ) -> DecodeRun:
        """Successive pure decode steps: their contexts grow evenly, so the run never ends."""
        first = StepShape((), num_decode, context_tokens, longest_context_tokens)
        return DecodeRun(self._decode_ps(first), self._terms.context_token_ps * num_decode)

    def _decode_ps(self, shape: StepShape) -> int:
        terms = self._terms
        return (
            self._tokens_ps(shape.num_decode + shape.num_drafts)
            + (terms.decode_seq_ps + self._correction.sequence_ps) * shape.num_decode
            + terms.context_token_ps * shape.context_tokens
            + terms.longest_excess_token_ps * longest_excess(shape)
        )

    def _tokens_ps(self, tokens: int) -> int:
        table = self._token_ps
        return table[tokens] if tokens < len(table) else self._g_ps(tokens)

    def _g_ps(self, tokens: int) -> int:
        """The part of the step time by the token count alone, correction included, in ps."""
        return self._cost.ps(tokens) + self._constant_ps + self._token_each_ps * tokens
