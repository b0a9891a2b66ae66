"""vLLM's KV cache events (vllm/distributed/kv_events.py), and the set of cached blocks after them.

Events are arrays with a tag, or maps with a `type`. Fields that newer versions append may be
missing. Token ids, which are the prompts, are not stored.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError

BlockHash = int | str | bytes
# Of BlockStored and BlockRemoved as arrays: names of what follows the tag.
_STORED = (
    *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"),
    *("lora_name", "extra_keys", "group_idx"),
)
_REMOVED = ("block_hashes", "medium", "group_idx")
STORED, REMOVED, CLEARED = "BlockStored", "BlockRemoved", "AllBlocksCleared"
KINDS = (STORED, REMOVED, CLEARED)
DEVICE = "GPU"  # what an event without a medium is of


class KvEvent(NamedTuple):
    """One event. kind is one of KINDS. hashes are those of its blocks. block_size is in tokens per
    block, if given. medium is where the blocks are. group is the layer group, if there are several.
    """

    kind: str
    hashes: tuple[BlockHash, ...] = ()
    parent: BlockHash | None = None
    block_size: int | None = None
    medium: str = DEVICE
    group: int = 0


class KvBatch(NamedTuple):
    """Events published together. time_s is a Unix time. sequence is the batch's number, if frames
    were recorded. rank is the data-parallel rank.
    """

    time_s: float | None
    events: tuple[KvEvent, ...]
    sequence: int | None = None
    rank: int = 0


class CachedBlocks:
    """The blocks that are cached, by (rank, medium, group, hash).

    Several blocks may hold the same content; each is stored and removed by its own event. The
    content is cached as long as one of them is.
    """

    def __init__(self) -> None:
        self._blocks: Counter[tuple[int, str, int, BlockHash]] = Counter()
        self.unknown_removals = 0

    def apply(self, event: KvEvent, rank: int = 0) -> None:
        """Update the set with an event of this rank.

        The removal of a block that was never stored is only counted, since a record may begin late.
        """
        if event.kind == CLEARED:
            self._blocks = Counter({key: n for key, n in self._blocks.items() if key[0] != rank})
            return
        for block_hash in event.hashes:
            key = (rank, event.medium, event.group, block_hash)
            if event.kind == STORED:
                self._blocks[key] += 1
            elif self._blocks[key] > 1:
                self._blocks[key] -= 1
            elif not self._blocks.pop(key, 0):
                self.unknown_removals += 1

    def hashes(self, medium: str = DEVICE, group: int = 0, rank: int = 0) -> set[BlockHash]:
        """Hashes of the content that is cached for this medium, layer group and rank."""
        return {key[3] for key in self._blocks if key[:3] == (rank, medium, group)}

    def __len__(self) -> int:
        """The number of cached blocks, including those with equal content."""
        return self._blocks.total()


def batch(value: Any, where: str, sequence: int | None = None) -> KvBatch:
    """Parse a decoded payload: [time, [event...], rank?], a map with these, or a single event."""
    if isinstance(value, Mapping) and "events" in value:
        time_s, events, rank = value.get("ts"), value["events"], value.get("data_parallel_rank")
    elif _kind(value) is not None:
        time_s, events, rank = None, [value], None
    elif isinstance(value, list | tuple) and len(value) >= 2 and isinstance(value[1], list | tuple):
        time_s, events, rank = value[0], value[1], value[2] if len(value) > 2 else None
    else:
        raise InputError("neither a batch of KV events nor one event", where=where)
    if not isinstance(events, list | tuple):
        raise InputError("not a list of events", where=where)
    if time_s is not None and (isinstance(time_s, bool) or not isinstance(time_s, int | float)):
        raise InputError("not a time", where=where, value=time_s)
    return KvBatch(
        None if time_s is None else float(time_s),
        tuple(event for each in events for event in _event(each, where)),
        sequence,
        rank if isinstance(rank, int) else 0,
    )


def _kind(value: Any) -> str | None:
    """The kind of an event; None if the value is not an event."""
    if isinstance(value, Mapping):
        kind = value.get("type", value.get("event_type"))
    else:
        kind = value[0] if isinstance(value, list | tuple) and value else None
    return kind if isinstance(kind, str) and kind in KINDS else None


def _event(value: Any, where: str) -> Iterator[KvEvent]:
    kind = _kind(value)
    if kind is None:
        raise InputError("not a KV event", where=where, limit=", ".join(KINDS))
    if kind == CLEARED:
        yield KvEvent(CLEARED)
        return
    if isinstance(value, Mapping):
        fields: Mapping[str, Any] = value
    else:
        fields = dict(zip(_STORED if kind == STORED else _REMOVED, value[1:], strict=False))
    hashes = fields.get("block_hashes")
    if not isinstance(hashes, list | tuple) or not all(map(_is_hash, hashes)):
        raise InputError("not a list of hashes", where=f"{where}: block_hashes")
    size, group, medium = (fields.get(name) for name in ("block_size", "group_idx", "medium"))
    if size is not None and (type(size) is not int or not 0 < size < 1 << 32):
        raise InputError("not a block size", where=f"{where}: block_size", value=size)
    parent = fields.get("parent_block_hash")
    yield KvEvent(
        kind,
        tuple(hashes),
        parent if _is_hash(parent) else None,
        size,
        medium if isinstance(medium, str) and medium else DEVICE,
        group if type(group) is int else 0,
    )


def _is_hash(value: Any) -> bool:
    return isinstance(value, int | str | bytes) and not isinstance(value, bool)
