"""Slots past the tokens of a step, for the drafts that follow it."""

from dataclasses import dataclass
from typing import Self

from kvsim.memory.options import MemorySpec


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Slots that a method of drafting needs; all zero without drafts.

    tokens: draft tokens of each sequence. slots: slots beyond those of a step. redrafted: last
    tokens with slots that may be written again. depth: steps in flight.
    """

    speculates: bool
    tokens: int
    slots: int
    redrafted: int
    depth: int
    max_model_len: int

    @classmethod
    def of(cls, memory: MemorySpec) -> Self:
        """The lookahead of the drafter of `memory`."""
        drafts, depth, longest = memory.speculation, 1 + memory.hash_lag, memory.max_model_len
        if drafts is None:
            return cls(False, 0, 0, 0, depth, longest)
        slots, redrafted = drafts.lookahead_slots, drafts.redrafted_tokens
        return cls(True, drafts.tokens, slots, redrafted, depth, longest)

    def room(self, num_tokens: int) -> int:
        """Slots to allocate for a step up to slot `num_tokens`, including those of the next drafts;
        at most those of the longest sequence.
        """
        return min(num_tokens + self.slots, max(num_tokens, self.max_model_len))

    def final_room(self, final_tokens: int) -> int:
        """`room` for the last step of a sequence as it is scheduled: all drafts in flight count as
        accepted.
        """
        return self.room(min(final_tokens + self.tokens * self.depth, self.max_model_len))

    def unused(self, num_tokens: int, valid_tokens: int) -> int:
        """Allocated slots that are not valid when the step has returned."""
        return self.room(num_tokens) - valid_tokens if self.speculates else 0
