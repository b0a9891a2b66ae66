"""Totals of tiers and their links in a run."""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.engine.copy_log import CopyLog

TO_HOST, FROM_HOST = "device to host", "host to device"


class TierTotals(NamedTuple):
    """Totals of one tier in a run.

    capacity_bytes: size over all ranks; None: no limit. stored_bytes, loaded_bytes: bytes copied
    into and out of the tier by each tensor-parallel rank, summed over pipeline stages.
    store_busy_ps, load_busy_ps: sum of the durations of its copies. failed_stores: offers that
    found no room. copies: log of the copies over each link, by the link's name.
    """

    kind: str
    capacity_bytes: int | None
    stored_bytes: int
    loaded_bytes: int
    store_busy_ps: int
    load_busy_ps: int
    failed_stores: int = 0
    copies: tuple[tuple[str, CopyLog], ...] = ()

    @classmethod
    def together(cls, same: "Sequence[TierTotals]") -> "TierTotals":
        """Sum the totals of the same tier in several replicas; the capacity is None if one is."""
        sizes = [each.capacity_bytes for each in same]
        return cls(
            same[0].kind,
            None if None in sizes else sum(size or 0 for size in sizes),
            sum(each.stored_bytes for each in same),
            sum(each.loaded_bytes for each in same),
            sum(each.store_busy_ps for each in same),
            sum(each.load_busy_ps for each in same),
            sum(each.failed_stores for each in same),
            tuple(named for each in same for named in each.copies),
        )


class RunTotals(NamedTuple):
    """Totals of all tiers in a run.

    hit_tokens: tokens found in the tiers and not on the device, for sequences that started for the
    first time. awaited_hit_tokens: hit tokens of sequences that waited for their load. num_waits,
    wait_ps: number and total time of waits of sequences for a load. held_up_ps: total time for
    which steps waited for copies before their launch. storage_hit_tokens: hit tokens that were read
    from the tier after host memory. recompute_ps: by how much longer all steps would have taken if
    the device had computed what was loaded, each prompt in a separate step.
    """

    tiers: tuple[TierTotals, ...]
    hit_tokens: int
    awaited_hit_tokens: int
    num_waits: int
    wait_ps: int
    held_up_ps: int
    storage_hit_tokens: int = 0
    recompute_ps: int = 0

    @classmethod
    def together(cls, parts: "Sequence[RunTotals | None]") -> "RunTotals | None":
        """Sum the totals of several replicas; None if none has tiers."""
        found = [each for each in parts if each is not None]
        if not found:
            return None
        tiers = zip(*(each.tiers for each in found), strict=True)
        return cls(
            tuple(map(TierTotals.together, tiers)),
            sum(each.hit_tokens for each in found),
            sum(each.awaited_hit_tokens for each in found),
            sum(each.num_waits for each in found),
            sum(each.wait_ps for each in found),
            sum(each.held_up_ps for each in found),
            sum(each.storage_hit_tokens for each in found),
            sum(each.recompute_ps for each in found),
        )
