"""Parse the figures of torch.cuda.memory_stats() of one device, stored as JSON."""

from typing import Any

from kvsim.interchange.torch_snapshot.ledger import SnapshotLedger
from kvsim.plumbing.errors import InputError

_CURRENT = ("requested", "allocated", "active", "inactive_split", "reserved")


def ledger_of_stats(stats: dict[str, Any], where: str) -> SnapshotLedger:
    """The ledger for these figures; InputError if they are not memory_stats(). The size of the
    largest free piece is not included in the figures.
    """
    now = {name: _figure(stats, f"{name}_bytes.all.current", where) for name in _CURRENT}
    ledger = SnapshotLedger(
        device=0,
        segments=_figure(stats, "segment.all.current", where),
        requested=now["requested"],
        rounding=now["allocated"] - now["requested"],
        awaiting_free=now["active"] - now["allocated"],
        split=now["inactive_split"],
        whole=now["reserved"] - now["active"] - now["inactive_split"],
        largest_free=None,
        peak_requested=_figure(stats, "requested_bytes.all.peak", where),
    )
    if min(ledger.rounding, ledger.awaiting_free, ledger.whole) < 0:
        raise InputError("the bytes of torch.cuda.memory_stats() do not add up", where=where)
    return ledger


def _figure(stats: dict[str, Any], key: str, where: str) -> int:
    value = stats.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(
            "no figure of torch.cuda.memory_stats()",
            where=f"{where}: {key}",
            value=value,
            remedy="give json.dumps(torch.cuda.memory_stats()), from torch 2.1 on",
        )
    return value
