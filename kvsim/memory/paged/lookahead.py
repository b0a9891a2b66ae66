"""Slots past the tokens of a step, for the drafts that follow it."""

from dataclasses import dataclass
from typing import Self

from kvsim.memory.options import MemorySpec


@dataclass(frozen=True, slots=True)
class Lookahead:
    """What a way of drafting asks of slots; all zero where none is drafted.

    tokens: drafted of each sequence. slots: kept past those of a step. redrafted: tokens whose
    slots may yet be written again. depth: steps in flight.
    """

    speculates: bool
    tokens: int
    slots: int
    redrafted: int
    depth: int
    max_model_len: int

    @classmethod
    def of(cls, memory: MemorySpec) -> Self:
        """As the pool was made for."""
        drafts, depth, longest = memory.speculation, 1 + memory.hash_lag, memory.max_model_len
        if drafts is None:
            return cls(False, 0, 0, 0, depth, longest)
        slots, redrafted = drafts.lookahead_slots, drafts.redrafted_tokens
        return cls(True, drafts.tokens, slots, redrafted, depth, longest)

    def room(self, num_tokens: int) -> int:
        """Slots to be had for a step up to `num_tokens` slots, those of the next drafts included:
        no more than the longest sequence has.
        """
        return min(num_tokens + self.slots, max(num_tokens, self.max_model_len))

    def final_room(self, final_tokens: int) -> int:
        """The same for the last step of a sequence, as it is scheduled: every draft under way is
        believed to be right.
        """
        return self.room(min(final_tokens + self.tokens * self.depth, self.max_model_len))

    def unused(self, num_tokens: int, valid_tokens: int) -> int:
        """Of these slots, those that are not valid when the step has returned."""
        return self.room(num_tokens) - valid_tokens if self.speculates else 0
