"""What an allocator with a prefix cache promises the scheduler beside the core (allocator.py).

One promise for every engine's cache: blocks by the hash of their content, or a radix tree. What
stands here is the answer of an allocator that keeps nothing for others.
"""

from typing import NamedTuple

from mypy_extensions import mypyc_attr

from kvsim.sequence import Sequence


class CacheTotals(NamedTuple):
    """What a prefix cache was asked and had so far, 0 without one.

    host_hit_tokens: of the hits, those from a tier in host memory; host_bytes: moved to it and
    back.
    """

    query_tokens: int = 0
    hit_tokens: int = 0
    host_hit_tokens: int = 0
    host_bytes: int = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class PrefixPromise:
    """What sequences compute may be found by others. keeps_prefixes: content is kept for that."""

    keeps_prefixes: bool = False

    # --- hits -----------------------------------------------------------------------------------

    def cached_tokens(self, seq: Sequence) -> int:
        """Leading tokens of `seq` that a prefix cache holds now. Mutates nothing."""
        return 0

    def shared_tokens(self, seq: Sequence) -> int:
        """Leading slots of a running `seq` that other sequences hold too, and keep if it leaves."""
        return 0

    # --- what becomes known --------------------------------------------------------------------

    def checkpoint(self, seq: Sequence, num_tokens: int) -> None:
        """The step has returned that computed a prompt, or a part of it, up to the first
        `num_tokens` slots of `seq`, which runs. An allocator to which content is known as soon as
        it is scheduled needs no telling.
        """
        return

    @property
    def chunk_tokens(self) -> int:
        """Chunks of a prompt but its last end at multiples of so many, where a step has as many."""
        return 1

    def cut_chunk(self, seq: Sequence, start_tokens: int, new_tokens: int, most_tokens: int) -> int:
        """How many of the `new_tokens` tokens from `start_tokens` on the next chunk of a waiting or
        prefilling sequence had better compute, so that it ends where something can be kept; 0:
        none in this step. most_tokens: what a step could compute for it at most.
        """
        return new_tokens

    # --- the books -----------------------------------------------------------------------------

    @property
    def saved_bytes(self) -> int | None:
        """What sequences hold together, counted for each but the first of them. It does not move
        while the same sequences only decode; None for an allocator where it would.
        """
        return 0

    @property
    def tells_cached(self) -> bool:
        """Whether `parts` says why content is cached."""
        return False

    def cache_totals(self) -> CacheTotals:
        """What its prefix cache did so far."""
        return CacheTotals()
