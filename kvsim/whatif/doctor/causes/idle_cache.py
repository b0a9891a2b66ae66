"""A prefix cache that gets no hits, but costs memory or copies."""

from typing import ClassVar

from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.watch import SUBSTANTIAL


class IdleCache(Cause):
    """Suspected if an infinite cache would hit less than a twentieth of the prompts, and caching
    costs recurrent states or copies to the host.

    Caching plain blocks is free: they remain allocatable.
    """

    title: ClassVar[str] = "a prefix cache that has nothing to find"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        states = any(group.state_bytes for group in case.simulation.layout.groups)
        if not case.caching or not (
            states or case.option(case.allocator, "host_cache_gib") is not None
        ):
            return None
        possible = case.curve(case.block_tokens).unlimited
        if possible >= SUBSTANTIAL or case.hit_share >= SUBSTANTIAL:
            return None
        asked = case.summary.prefix_cache.query_tokens
        evidence = (
            f"of {asked:,} prompt tokens that the cache was asked for, "
            f"{100 * case.hit_share:.1f} % were found, and {100 * possible:.1f} % could have been "
            f"in blocks of {case.block_tokens:,} if nothing was ever forgotten",
        )
        changes: dict[str, object] = {"allocator.0.enable_prefix_caching": False}
        for key in ("host_cache_gib", "prefix_cache_retention_interval"):
            if case.option(case.allocator, key) is not None:
                changes[f"allocator.0.{key}"] = None
        return Suspicion(evidence, (Cure(changes, "--no-enable-prefix-caching"),))
