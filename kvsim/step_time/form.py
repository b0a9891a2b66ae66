"""What a step is made of, and what a step-time form must answer.

Times are integer picoseconds. A form is affine in the context of its decoding sequences over
stretches, so that `k` steps of an unchanged batch, whose context grows by `num_decode` a step, sum
in closed form: step t lasts `first_ps + growth_ps * t`.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable


class Chunk(NamedTuple):
    """Prompt tokens of one sequence computed in one step, behind `prior` computed ones."""

    new_tokens: int
    prior_tokens: int


@dataclass(frozen=True, slots=True)
class StepShape:
    """One engine step.

    chunks: the prefill chunks; num_decode: sequences that decode one token each;
    context_tokens: the sum over them of the tokens they attend to, the new one included;
    longest_context_tokens: the longest of these (0 if not known).
    """

    chunks: tuple[Chunk, ...]
    num_decode: int
    context_tokens: int
    longest_context_tokens: int = 0

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens computed in the step."""
        return sum(chunk.new_tokens for chunk in self.chunks)

    @property
    def attention_pairs(self) -> int:
        """Query-key pairs of the chunks: sum of new * prior + new * (new + 1) / 2."""
        return sum(new * prior + new * (new + 1) // 2 for new, prior in self.chunks)

    @property
    def prefill_context_tokens(self) -> int:
        """KV tokens the chunks read: sum of prior + new."""
        return sum(new + prior for new, prior in self.chunks)


class DecodeRun(NamedTuple):
    """Decode steps of an unchanged batch: step t = 0, 1, ... lasts first_ps + growth_ps * t.

    steps: for how many steps this holds exactly (then ask again); None: for ever.
    """

    first_ps: int
    growth_ps: int
    steps: int | None = None


class StepTime(Protocol):
    """How long a step takes. Pure: no state, the same answer for the same shape."""

    def step_ps(self, shape: StepShape) -> int:
        """Duration of one step in ps, >= 0; 0 only for an empty step."""
        ...

    def decode_run(
        self, num_decode: int, context_tokens: int, longest_context_tokens: int = 0
    ) -> DecodeRun:
        """Durations of successive pure decode steps.

        context_tokens is that of step 0; each step adds num_decode to it and 1 to the longest.
        Step 0 equals `step_ps` of the same shape, exactly, and so does every step t < steps.
        """
        ...


@runtime_checkable
class Measured(Protocol):
    """A form fitted to measurements knows where it extrapolates."""

    def outside_domain(self, shape: StepShape) -> bool:
        """Whether the time of this step (it has a token) goes beyond what was measured. The same
        for all steps of a decode run.
        """
        ...
