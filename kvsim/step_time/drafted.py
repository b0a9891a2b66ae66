"""A step that verifies drafts, and then proposes the next ones.

    t = target + first pass of the drafter + (k - 1) * one more pass

The target's form counts the drafts that it verifies among its tokens. The drafter's first pass
computes the tokens that the target has just computed (its own keys and values must follow). Each
further pass computes a token of every sequence that goes on. A drafter of blocks has one pass
instead, over all drafts of every sequence and its newest token. A method that looks its drafts up
in the text has no passes. A measured time of drafting replaces all of them.
"""

from typing import Protocol

from kvsim.step import StepShape
from kvsim.step_time.form import DecodeRun, Measured, Sourced, StepTime


class DraftingTime(Protocol):
    """The time to propose the drafts of a step."""

    def draft_ps(self, shape: StepShape) -> int:
        """Drafting time in ps after a step of this shape."""
        ...


class MeasuredDrafting:
    """A constant time after every step that computes anything."""

    def __init__(self, step_ps: int) -> None:
        self._step_ps = step_ps

    def draft_ps(self, shape: StepShape) -> int:
        return self._step_ps if shape.num_tokens else 0


class DraftingPasses:
    """Drafting by successive passes of a drafter, timed by its own form. tokens: drafted for each
    sequence.
    """

    def __init__(self, drafter: StepTime, tokens: int) -> None:
        self._drafter = drafter
        self._more = tokens - 1

    def draft_ps(self, shape: StepShape) -> int:
        first_ps = self._drafter.step_ps(shape)
        sequences = shape.num_decode + len(shape.chunks)
        if not self._more or not sequences:
            return first_ps
        context = shape.context_tokens + shape.prefill_context_tokens
        return first_ps + self._more * self._drafter.step_ps(StepShape((), sequences, context))


class BlockPass:
    """Drafting in one pass of a drafter, timed by its own form. queries: queries of each sequence,
    which see its context and each other. The projection of the target's states to keys and values
    takes no time.
    """

    def __init__(self, drafter: StepTime, queries: int) -> None:
        self._drafter = drafter
        self._queries = queries

    def draft_ps(self, shape: StepShape) -> int:
        sequences = shape.num_decode + len(shape.chunks)
        if not sequences:
            return 0
        context = shape.context_tokens + shape.prefill_context_tokens + sequences * self._queries
        more = sequences * (self._queries - 1)
        return self._drafter.step_ps(StepShape((), sequences, context, num_drafts=more))


class DraftedTime:
    """The time of a target's step and of drafting after it, as a `StepTime`. source: of the
    target's times; empty where they have none.
    """

    def __init__(self, target: StepTime, drafting: DraftingTime) -> None:
        self.target = target
        self.source = target.source if isinstance(target, Sourced) else ""
        self._drafting = drafting

    def step_ps(self, shape: StepShape) -> int:
        """Duration of one step in ps; 0 for an empty one."""
        if not shape.num_tokens:
            return 0
        return self.target.step_ps(shape) + self._drafting.draft_ps(shape)

    def decode_run(
        self, num_decode: int, context_tokens: int, longest_context_tokens: int = 0
    ) -> DecodeRun:
        """One step: how many tokens a verification puts out differs from step to step."""
        shape = StepShape((), num_decode, context_tokens, longest_context_tokens)
        return DecodeRun(self.step_ps(shape), 0, 1)


class DraftedMeasured(DraftedTime):
    """A DraftedTime with a target's form that was fitted to measurements."""

    def __init__(self, target: StepTime, measured: Measured, drafting: DraftingTime) -> None:
        super().__init__(target, drafting)
        self._measured = measured

    def outside_domain(self, shape: StepShape) -> bool:
        """Whether the target's time is extrapolated; drafting is never measured step by step."""
        return self._measured.outside_domain(shape)


def drafted(target: StepTime, drafting: DraftingTime) -> StepTime:
    """The form of `target`, each step followed by this drafting."""
    if isinstance(target, Measured):
        return DraftedMeasured(target, target, drafting)
    return DraftedTime(target, drafting)
