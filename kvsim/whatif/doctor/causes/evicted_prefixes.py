"""Prefixes that were there and are thrown out before they come again."""

from typing import ClassVar

from kvsim.plumbing.units import GIB
from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL


class EvictedPrefixes(Cause):
    """Suspected where a cache that forgets nothing would find a twentieth of the prompts more than
    one as large as the pool, and the pool finds less still.
    """

    title: ClassVar[str] = "a pool too small for the prefixes that come again"
    resource: ClassVar[bool] = True

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        if not case.caching:
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
        cures = []
        if case.option(case.allocator, "host_cache_gib") is None and not case.several_tables:
            gib = max(1, round(size / GIB + 0.5))
            changes = {"allocator.0.host_cache_gib": gib}
            cures.append(
                Cure(changes, f"--kv-offloading-size {gib}", "it takes memory of the host")
            )
        return Suspicion(evidence, tuple(cures))
