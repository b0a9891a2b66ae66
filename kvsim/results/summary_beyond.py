"""Summaries that few runs have: tiers after the device, transfers between replicas, encoders and
adapters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvsim.results.summary_part import NULL, Count, Difference, Measured, SummaryPart


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TransferSummary(SummaryPart):
    """Transfers from prefill replicas to decode replicas.

    prefill_replicas, decode_replicas: number of each. transfers: number of transfers; num_bytes:
    bytes sent, on the busiest GPU of each replica. mean_s: mean duration of a transfer;
    mean_wait_s: mean wait for a port before it. port_busy: share of the makespan for which the
    ports of the side with fewer replicas were busy. expired: prompts with a lease that ended before
    they were read.
    """

    prefill_replicas: Count
    decode_replicas: Count
    transfers: Count
    num_bytes: Count
    mean_s: Measured | None
    mean_wait_s: Measured | None
    port_busy: Measured
    expired: Count

    @classmethod
    def together(cls, parts: Sequence["TransferSummary"]) -> "TransferSummary | None":
        """Sum the transfers of several deployments; None without any."""
        if len(parts) < 2:
            return parts[0] if parts else None
        count = sum(each.transfers for each in parts)

        def mean(name: str) -> float | None:
            total = sum((getattr(each, name) or 0.0) * each.transfers for each in parts)
            return total / count if count else None

        return cls(
            prefill_replicas=sum(each.prefill_replicas for each in parts),
            decode_replicas=sum(each.decode_replicas for each in parts),
            transfers=count,
            num_bytes=sum(each.num_bytes for each in parts),
            mean_s=mean("mean_s"),
            mean_wait_s=mean("mean_wait_s"),
            port_busy=sum(each.port_busy for each in parts) / len(parts),
            expired=sum(each.expired for each in parts),
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EncoderSummary(SummaryPart):
    """Images, sounds and videos of prompts. encoded_items, encoded_tokens: computed by the encoder,
    and their embeddings. found_items: items with embeddings in the cache.
    """

    encoded_items: Count
    encoded_tokens: Count
    found_items: Count


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class AdaptersSummary(SummaryPart):
    """LoRA adapters. activated: copies to the device; read: of these, those that host memory did
    not have either. delayed: sequences that were skipped as all slots were taken; delay_s: their
    mean time from arrival to their first step (None without any).
    """

    activated: Count
    read: Count
    delayed: Count
    delay_s: Measured | None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TierSummary(SummaryPart):
    """One tier after the device.

    kind: as in `[[tier]]`. capacity_bytes: null where it has no limit. stored_bytes, loaded_bytes:
    copied into it and out of it, by one rank for host memory; store_busy_s, load_busy_s: how long
    these copies moved, in sum. failed_stores: stores that found no room. hit_tokens: part of
    `prefix_cache.host_hit_tokens` hit in this tier; what a request reads from a storage into host
    memory is a hit of the storage.
    """

    kind: str
    capacity_bytes: Count | None = field(default=None, metadata=NULL)
    stored_bytes: Count
    loaded_bytes: Count
    store_busy_s: Measured
    load_busy_s: Measured
    failed_stores: Count
    hit_tokens: Count | None = None

    @classmethod
    def together(cls, parts: Sequence["TierSummary"]) -> "TierSummary":
        """The same tier of several replicas: all numbers in sum, no limit where one has none."""
        limits = [each.capacity_bytes for each in parts]
        return cls(
            kind=parts[0].kind,
            capacity_bytes=None if None in limits else sum(filter(None, limits)),
            stored_bytes=sum(each.stored_bytes for each in parts),
            loaded_bytes=sum(each.loaded_bytes for each in parts),
            store_busy_s=sum(each.store_busy_s for each in parts),
            load_busy_s=sum(each.load_busy_s for each in parts),
            failed_stores=sum(each.failed_stores for each in parts),
            hit_tokens=sum(each.hit_tokens or 0 for each in parts),
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TiersSummary(SummaryPart):
    """The tiers after the device.

    tiers: the nearest first. loads_awaited: how often a sequence waited for its load, or for the
    answer of a lookup, until it ran. load_wait_s: for how long on average, null where none did.
    held_up_s: how long steps waited for copies, in sum. recompute_s: additional time of steps if
    all loaded tokens had been computed, each prompt in one step of its own. saved_s: recompute_s
    less all waits of sequences and of steps, below zero where loads cost more.
    """

    tiers: tuple[TierSummary, ...]
    loads_awaited: Count
    load_wait_s: Measured | None = field(default=None, metadata=NULL)
    held_up_s: Measured
    recompute_s: Measured | None = None
    saved_s: Difference | None = None

    @classmethod
    def together(cls, parts: Sequence["TiersSummary"]) -> "TiersSummary | None":
        """Sum the tiers of several replicas, each with its own; None without any."""
        if len(parts) < 2:
            return parts[0] if parts else None
        waits = sum(each.loads_awaited for each in parts)
        wait_s = sum((each.load_wait_s or 0.0) * each.loads_awaited for each in parts)
        return cls(
            tiers=tuple(
                TierSummary.together(same)
                for same in zip(*(each.tiers for each in parts), strict=False)
            ),
            loads_awaited=waits,
            load_wait_s=wait_s / waits if waits else None,
            held_up_s=sum(each.held_up_s for each in parts),
            recompute_s=sum(each.recompute_s or 0.0 for each in parts),
            saved_s=sum(each.saved_s or 0.0 for each in parts),
        )
