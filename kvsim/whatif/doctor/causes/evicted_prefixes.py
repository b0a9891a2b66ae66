"""Cached prefixes are evicted before they are used again."""

from typing import ClassVar

from kvsim.plumbing.units import GIB
from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.tier_sizes import tier_for
from kvsim.whatif.watch import SUBSTANTIAL


class EvictedPrefixes(Cause):
    """Suspected if an infinite cache hits >= 5 points more than an LRU cache of the pool's size,
    which itself hits more than the pool.

    Where there are tiers, `small-tier` is suspected instead.
    """

    title: ClassVar[str] = "a pool too small for the prefixes that come again"
    resource: ClassVar[bool] = True

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        if not case.caching or case.summary.offloading is not None:
            return None
        curve = case.curve(case.block_tokens)
        most, here = curve.unlimited, curve.ratio(case.capacity_tokens)
        if most - max(here, case.hit_share) < SUBSTANTIAL:
            return None
        tokens = (len(curve.hit_tokens) - 1) * curve.block_tokens
        size = tokens * case.simulation.layout.bytes_per_token
        evidence = (
            f"{100 * case.hit_share:.1f} % of the prompts were found; nothing forgotten, it would "
            f"be {100 * most:.1f} %, in a cache of {tokens:,} tokens ({size / GIB:,.0f} GiB); the "
            f"pool has {case.capacity_tokens:,}",
        )
        tier = tier_for(case.simulation, tokens)
        if tier is None:
            return Suspicion(evidence, ())
        return Suspicion(evidence, (Cure(tier.changes, tier.flags, "it takes memory of the host"),))
