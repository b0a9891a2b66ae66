"""Summarise the tiers after the device."""

from kvsim.engine.connectors.totals import RunTotals
from kvsim.plumbing.units import seconds_from_ps
from kvsim.results.summary_beyond import TiersSummary, TierSummary


def tiers_summary(totals: RunTotals) -> TiersSummary:
    """Totals of the tiers after the device, and of the waits for their copies."""
    hits = (totals.hit_tokens - totals.storage_hit_tokens, totals.storage_hit_tokens)
    tiers = [
        TierSummary(
            kind=tier.kind,
            capacity_bytes=tier.capacity_bytes,
            stored_bytes=tier.stored_bytes,
            loaded_bytes=tier.loaded_bytes,
            store_busy_s=seconds_from_ps(tier.store_busy_ps),
            load_busy_s=seconds_from_ps(tier.load_busy_ps),
            failed_stores=tier.failed_stores,
            hit_tokens=hit_tokens,
        )
        for tier, hit_tokens in zip(totals.tiers, hits, strict=False)
    ]
    waits = totals.num_waits
    return TiersSummary(
        tiers=tuple(tiers),
        loads_awaited=waits,
        load_wait_s=seconds_from_ps(totals.wait_ps) / waits if waits else None,
        held_up_s=seconds_from_ps(totals.held_up_ps),
        recompute_s=seconds_from_ps(totals.recompute_ps),
        saved_s=seconds_from_ps(totals.recompute_ps - totals.wait_ps - totals.held_up_ps),
    )
