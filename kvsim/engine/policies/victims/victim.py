"""The interface of a rule that chooses the sequence to preempt."""

from abc import abstractmethod
from collections.abc import Callable, Reversible
from typing import ClassVar

from kvsim.plumbing.options import Options
from kvsim.sequence import Sequence

Tokens = Callable[[Sequence], int]


class Victim(Options):
    """Rule that chooses the sequence to preempt when memory runs out; its fields are its options.

    A rule has no state: it makes the same choice for the same sequences. by_priority: whether it
    compares the priorities of requests.
    """

    by_priority: ClassVar[bool] = False

    @abstractmethod
    def choose(
        self, running: Reversible[Sequence], computed_tokens: Tokens, shared_tokens: Tokens
    ) -> Sequence:
        """Choose one of `running`, which are in order of admission and include the sequence that
        needs memory.

        computed_tokens: gives the slots that a sequence would lose. shared_tokens: gives the
        leading slots among these that other sequences hold too, so that it would hit them again.
        """
        raise NotImplementedError(type(self).__name__)  # every registered rule overrides this
