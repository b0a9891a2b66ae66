"""The interface between a prefix cache and the scheduler, in addition to the core (allocator.py).

It is one for all engines' caches: blocks by the hash of their content, or a radix tree. The methods
here are those of an allocator without a prefix cache.
"""

from typing import NamedTuple

from mypy_extensions import mypyc_attr

from kvsim.sequence import Sequence


class CacheTotals(NamedTuple):
    """Tokens looked up and hit in a prefix cache so far, 0 without one. host_hit_tokens: hits in
    the host tier; host_bytes: bytes moved to it and back.
    """

    query_tokens: int = 0
    hit_tokens: int = 0
    host_hit_tokens: int = 0
    host_bytes: int = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class PrefixPromise:
    """Sharing of prefixes between sequences. keeps_prefixes: whether finished content is cached."""

    keeps_prefixes: bool = False

    # --- hits -----------------------------------------------------------------------------------

    def cached_tokens(self, seq: Sequence) -> int:
        """Leading tokens of `seq` that a prefix cache holds now. Mutates nothing."""
        return 0

    def shared_tokens(self, seq: Sequence) -> int:
        """Leading slots of a running `seq` that other sequences hold too."""
        return 0

    # --- what becomes known --------------------------------------------------------------------

    def checkpoint(self, seq: Sequence, num_tokens: int) -> None:
        """A step returned that computed the prompt of a running `seq` up to `num_tokens` slots. No
        effect if content counts as known once its step is scheduled.
        """
        return

    @property
    def chunk_tokens(self) -> int:
        """Chunks of a prompt except the last end at multiples of this number, if a step has as
        many.
        """
        return 1

    def cut_chunk(self, seq: Sequence, start_tokens: int, new_tokens: int, most_tokens: int) -> int:
        """Number of tokens, at most `new_tokens`, in the next chunk of a waiting or prefilling
        sequence from `start_tokens` on.

        The chunk ends where content can be cached; 0: none in this step. most_tokens: most tokens
        of it in a step.
        """
        return new_tokens

    # --- the books -----------------------------------------------------------------------------

    @property
    def saved_bytes(self) -> int | None:
        """Bytes saved by sharing: shared content counted for each holder but the first. Constant
        while the same sequences only decode; None for an allocator where it is not.
        """
        return 0

    @property
    def tells_cached(self) -> bool:
        """Whether `parts` distinguishes why content is cached."""
        return False

    def cache_totals(self) -> CacheTotals:
        """The totals of the prefix cache so far."""
        return CacheTotals()
