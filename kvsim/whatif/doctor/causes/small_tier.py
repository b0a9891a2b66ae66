"""A tier after the device that is too small for the content that is reused."""

from typing import ClassVar

from kvsim.plumbing.units import GIB
from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.tier_sizes import all_ranks_bytes, tier_for
from kvsim.whatif.watch import SUBSTANTIAL


class SmallTier(Cause):
    """Suspected if an infinite cache would find a twentieth of the prompts more than the device and
    its tiers.

    The content must not fit into host memory.
    """

    title: ClassVar[str] = "a tier smaller than the working set"
    resource: ClassVar[bool] = True

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        offloading = case.summary.offloading
        if offloading is None or not case.caching:
            return None
        host = offloading.tiers[0].capacity_bytes
        curve = case.curve(case.block_tokens)
        tokens = (len(curve.hit_tokens) - 1) * curve.block_tokens
        size = all_ranks_bytes(case.simulation, tokens)
        if host is None or size <= host or curve.unlimited - case.hit_share < SUBSTANTIAL:
            return None
        evidence = [
            f"{100 * case.hit_share:.1f} % of the prompts were found on the device and in its "
            f"tiers; nothing forgotten, it would be {100 * curve.unlimited:.1f} %, in a cache of "
            f"{tokens:,} tokens ({size / GIB:,.1f} GiB); host memory has {host / GIB:,.1f} GiB"
        ]
        failed = offloading.tiers[0].failed_stores
        if failed:
            evidence.append(f"{failed:,} stores found no room in host memory")
        wanted = tier_for(case.simulation, tokens)
        cures: tuple[Cure, ...] = ()
        if wanted is not None:
            cures = (Cure(wanted.changes, wanted.flags, "it takes memory of the host"),)
        return Suspicion(tuple(evidence), cures)
