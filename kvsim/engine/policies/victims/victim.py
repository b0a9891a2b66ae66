"""What a rule for the choice of a victim promises."""

from abc import abstractmethod
from collections.abc import Callable, Reversible

from kvsim.plumbing.options import Options
from kvsim.sequence import Sequence

Tokens = Callable[[Sequence], int]


class Victim(Options):
    """Chooses who is preempted when a running sequence finds no room; its fields are its options.

    A rule is pure: the same choice for the same sequences, whatever was asked before.
    """

    @abstractmethod
    def choose(
        self, running: Reversible[Sequence], computed_tokens: Tokens, shared_tokens: Tokens
    ) -> Sequence:
        """One of `running` (in order of admission, at least one; who asks for room is among them,
        and may be chosen). computed_tokens: slots a sequence would lose. shared_tokens: of these
        the leading ones that others hold too, so that it would find them again.
        """
        raise NotImplementedError(type(self).__name__)  # every registered rule overrides this
