"""Linear step time: a base, and so much for each prompt token, decoding sequence, context token."""

from dataclasses import dataclass
from typing import Self

from pydantic import Field, model_validator

from kvsim.plumbing.units import PS_PER_NS, PS_PER_US
from kvsim.step import StepShape
from kvsim.step_time.form import DecodeRun
from kvsim.step_time.options import Hardware, StepTimeOptions


class Linear(StepTimeOptions):
    """base_us + prefill_token_us * prompt tokens + decode_seq_us * decoding sequences
    + draft_token_us * drafted tokens that are verified
    + context_token_ns * the tokens the decoding sequences attend to.

    Coefficients are rounded to whole picoseconds, so whole microseconds are kept exactly. The
    hardware plays no part.
    """

    base_us: float = Field(default=0.0, ge=0)
    prefill_token_us: float = Field(default=0.0, ge=0)
    decode_seq_us: float = Field(default=0.0, ge=0)
    context_token_ns: float = Field(default=0.0, ge=0)
    draft_token_us: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _no_free_step(self) -> Self:
        decode = round(self.decode_seq_us * PS_PER_US) or round(self.context_token_ns * PS_PER_NS)
        prefill = round(self.prefill_token_us * PS_PER_US)
        if not round(self.base_us * PS_PER_US) and not (prefill and decode):
            raise ValueError(
                "steps would take no time: give base_us, or prefill_token_us and decode_seq_us"
            )
        return self

    def build(self, hardware: Hardware) -> "LinearForm":
        """The form, in integer picoseconds."""
        return LinearForm(
            base_ps=round(self.base_us * PS_PER_US),
            prefill_token_ps=round(self.prefill_token_us * PS_PER_US),
            decode_seq_ps=round(self.decode_seq_us * PS_PER_US),
            context_token_ps=round(self.context_token_ns * PS_PER_NS),
            draft_token_ps=round(self.draft_token_us * PS_PER_US),
        )


@dataclass(frozen=True, slots=True)
class LinearForm:
    """The coefficients in integer picoseconds; see `Linear`."""

    base_ps: int
    prefill_token_ps: int
    decode_seq_ps: int
    context_token_ps: int
    draft_token_ps: int = 0

    def step_ps(self, shape: StepShape) -> int:
        """Duration of one step; 0 if nothing is computed."""
        prefill_tokens = shape.prefill_tokens
        if not prefill_tokens and not shape.num_decode:
            return 0
        return (
            self.base_ps
            + self.prefill_token_ps * prefill_tokens
            + self.decode_seq_ps * shape.num_decode
            + self.context_token_ps * shape.context_tokens
            + self.draft_token_ps * shape.num_drafts
        )

    def decode_run(
        self, num_decode: int, context_tokens: int, longest_context_tokens: int = 0
    ) -> DecodeRun:
        """Successive decode steps, affine without end: the context grows by num_decode a step."""
        first = self.step_ps(StepShape((), num_decode, context_tokens))
        return DecodeRun(first, self.context_token_ps * num_decode)
