"""What of a summary lies beyond one device: tiers behind it, and transfers between replicas."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvsim.results.summary_part import NULL, Count, Measured, SummaryPart


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TransferSummary(SummaryPart):
    """What went from prefill replicas to decode replicas.

    prefill_replicas, decode_replicas: how many there are of each. transfers: sendings, num_bytes:
    what they carried, on the busiest GPU of each replica. mean_s: of a sending while it lasts,
    mean_wait_s: before it, for a port. port_busy: share of the makespan for which the ports of the
    side with fewer replicas were taken. expired: prompts whose lease ended before they were read.
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
        """Of several deployments side by side; None without any."""
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
class TierSummary(SummaryPart):
    """One tier behind the device. kind: as in `[[tier]]`. capacity_bytes: null where it has no
    limit. stored_bytes, loaded_bytes: copied into it and out of it, by one rank for host memory;
    store_busy_s, load_busy_s: how long these copies moved, in sum. failed_stores: offers that found
    no room.
    """

    kind: str
    capacity_bytes: Count | None = field(default=None, metadata=NULL)
    stored_bytes: Count
    loaded_bytes: Count
    store_busy_s: Measured
    load_busy_s: Measured
    failed_stores: Count


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TiersSummary(SummaryPart):
    """What lies behind the device. tiers: the nearest first. loads_awaited: how often a sequence
    waited for its load until it ran; load_wait_s: for how long on average, null where none did.
    held_up_s: how long steps waited for copies, in sum.
    """

    tiers: tuple[TierSummary, ...]
    loads_awaited: Count
    load_wait_s: Measured | None = field(default=None, metadata=NULL)
    held_up_s: Measured
