"""Copies between the device and its tiers that take longer than they save."""

from typing import Any, ClassVar

from kvsim.plumbing.units import GIB, PS_PER_S
from kvsim.whatif.doctor.causes.cause import Cause, Cure, Suspicion
from kvsim.whatif.doctor.examined_run import ExaminedRun
from kvsim.whatif.scenario_tables import Table
from kvsim.whatif.watch import SUBSTANTIAL

_FAST_GB_PER_S = 1e5
_LINK_OF_HOST = {
    "load_gb_per_s": _FAST_GB_PER_S,
    "store_gb_per_s": _FAST_GB_PER_S,
    "latency_us": 0.0,
}
_LINK_OF_FILES = {
    "read_gb_per_s": _FAST_GB_PER_S,
    "write_gb_per_s": _FAST_GB_PER_S,
    "read_latency_us": 0.0,
    "write_latency_us": 0.0,
    "lookup_us": 0.0,
}
_LINK_OF_HICACHE = {
    "hicache_load_gb_per_s": _FAST_GB_PER_S,
    "hicache_write_gb_per_s": _FAST_GB_PER_S,
    "hicache_copy_latency_us": 0.0,
}
_LINK_OF_STORAGE = {
    "storage_read_gb_per_s": _FAST_GB_PER_S,
    "storage_write_gb_per_s": _FAST_GB_PER_S,
    "storage_latency_us": 0.0,
}


class SlowLink(Cause):
    """Suspected where requests spent a twentieth of their time waiting for loads, or steps a
    twentieth of the run waiting for copies. Proved with links that take no time. The cure is to
    leave tiers out, the farthest first; where that is worse than the slow link, no flag cures it.
    """

    title: ClassVar[str] = "a link to the tiers that is the bottleneck"

    def suspect(self, case: ExaminedRun) -> Suspicion | None:
        offloading, recorder = case.summary.offloading, case.recorder
        if offloading is None:
            return None
        wait_s = offloading.loads_awaited * (offloading.load_wait_s or 0.0)
        lived_s = (recorder.waiting_sum + recorder.running_sum) / PS_PER_S
        waited = wait_s / lived_s if lived_s else 0.0
        span_s = case.summary.makespan_s
        held = offloading.held_up_s / span_s if span_s else 0.0
        if max(waited, held) < SUBSTANTIAL:
            return None
        evidence = [
            f"requests waited {offloading.loads_awaited:,} times for loads or lookups, "
            f"{100 * waited:.0f} % of all their time; steps waited for copies for "
            f"{100 * held:.0f} % of the run",
            f"computing what was loaded would have made steps {offloading.recompute_s or 0.0:.1f} "
            f"s longer; requests and steps waited {wait_s + offloading.held_up_s:.1f} s for it",
        ]
        evidence += [
            f"{tier.kind} gave {tier.loaded_bytes / GIB:,.1f} GiB in {tier.load_busy_s:.1f} s of "
            "copies"
            for tier in offloading.tiers
            if tier.load_busy_s
        ]
        return Suspicion(tuple(evidence), _without(case.table), _fast(case.table))


def _fast(table: Table) -> Cure:
    """The same tiers with links that take no time."""
    changes: dict[str, Any] = {}
    for place in range(len(table.get("tier", ()))):
        link = _LINK_OF_FILES if place else _LINK_OF_HOST
        changes |= {f"tier.{place}.{key}": value for key, value in link.items()}
    if not changes:
        allocator = table["allocator"][0]
        link = _LINK_OF_HICACHE
        if allocator.get("hicache_storage_backend"):
            link = link | _LINK_OF_STORAGE
        changes = {f"allocator.0.{key}": value for key, value in link.items()}
    return Cure(changes, "links that take no time")


def _without(table: Table) -> tuple[Cure, ...]:
    """Cures with fewer tiers, and with none."""
    tiers = table.get("tier", ())
    if tiers:
        cures = [Cure({"tier": None}, "no --kv-offloading-size")]
        if len(tiers) > 1:
            cures.insert(0, Cure({"tier": list(tiers[:1])}, "no tier behind host memory"))
        return tuple(cures)
    keys = [k for k in table["allocator"][0] if k.startswith(("hicache_", "storage_"))]
    behind = [key for key in keys if "storage" in key]

    def leave_out(names: list[str]) -> dict[str, Any]:
        return {f"allocator.0.{name}": None for name in names}

    none = Cure(leave_out(["enable_hierarchical_cache", *keys]), "no --enable-hierarchical-cache")
    if not behind:
        return (none,)
    return (Cure(leave_out(behind), "no --hicache-storage-backend"), none)
