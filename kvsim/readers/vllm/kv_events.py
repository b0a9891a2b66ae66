"""Recorded KV cache events: MessagePack as vLLM publishes it, or JSON lines with a batch or an
event each.

A binary file contains values one after the other. Each is a payload ([time, events, rank]), or a
frame ([topic, 8-byte sequence number, payload]). See `kvsim.readers.vllm.cached_blocks`.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.extras import need
from kvsim.readers.description import Description, ServerSettings
from kvsim.readers.parsing.json_lines import values
from kvsim.readers.reader import ENGINE_ITSELF, MEASURED, SERVER, Sniffed, Source
from kvsim.readers.vllm.cached_blocks import REMOVED, STORED, CachedBlocks, KvBatch, batch

_SIGNS = (b"BlockStored", b"BlockRemoved", b"AllBlocksCleared")
_SEQUENCE_BYTES = 8


class KvEvents(Source):
    """A record of KV cache events, which gives the block size and the cached set at the end."""

    rank = ENGINE_ITSELF
    what = "KV cache events"
    gives = SERVER | MEASURED

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the record by event tags near its beginning."""
        return any(sign in source.data[: 1 << 16] for sign in _SIGNS) and (
            source.document is not None or bool(source.records) or _is_binary(source.data)
        )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the cached set after all events, its largest size, and gaps in the record."""
        cached = CachedBlocks()
        sizes: set[int] = set()
        stored, removed, most = 0, 0, 0
        sequences: dict[int, list[int]] = {}
        for each in batches(source):
            if each.sequence is not None:
                sequences.setdefault(each.rank, []).append(each.sequence)
            for event in each.events:
                cached.apply(event, each.rank)
                most = max(most, len(cached))
                stored += len(event.hashes) if event.kind == STORED else 0
                removed += len(event.hashes) if event.kind == REMOVED else 0
                sizes |= {event.block_size} if event.block_size else set()
        notes = [note for numbers in sequences.values() for note in _gaps(numbers)]
        if cached.unknown_removals:
            notes.append(
                f"{cached.unknown_removals:,} blocks were removed that were not seen to be stored: "
                "the record begins late, or lacks events"
            )
        if len(sizes) > 1:
            notes.append(f"blocks of {', '.join(map(str, sorted(sizes)))} tokens")
        settings: dict[str, int] = {"enable_prefix_caching": True}
        if len(sizes) == 1:
            settings["block_size"] = sizes.pop()
        return Description(
            ServerSettings.parse(settings, source.name),
            measured={
                "kv_blocks_stored": stored,
                "kv_blocks_removed": removed,
                "cached_blocks_most": most,
                "cached_blocks_at_the_end": len(cached),
            },
            notes=tuple(notes),
        )


def batches(source: Sniffed) -> Iterator[KvBatch]:
    """The batches in order; InputError for an invalid one."""
    if source.document is not None:
        listed = isinstance(source.document, list) and not isinstance(
            source.document[0], str | float
        )
        for each in source.document if listed else [source.document]:
            yield batch(each, source.name)
    elif not _is_binary(source.data):
        for where, value in values(source.data, source.name):
            yield batch(value, where)
    else:
        yield from _packed(source)


def _is_binary(data: bytes) -> bool:
    return data[:1] not in (b"{", b"[", b" ", b"\n", b"\t")


def _packed(source: Sniffed) -> Iterator[KvBatch]:
    for number, value in enumerate(_unpacked(source.data, source.name), 1):
        where = f"{source.name}, value {number}"
        if _is_frame(value):
            sequence = int.from_bytes(value[1], "big")
            payloads = list(_unpacked(value[2], where))
            if len(payloads) != 1:
                raise InputError("a frame holds one payload", where=where, value=len(payloads))
            yield batch(payloads[0], where, sequence)
        else:
            yield batch(value, where)


def _is_frame(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and isinstance(value[1], bytes)
        and len(value[1]) == _SEQUENCE_BYTES
        and isinstance(value[2], bytes)
    )


def _unpacked(data: bytes, where: str) -> Iterator[Any]:
    """The MessagePack values in these bytes; lengths beyond the data's size are refused."""
    need("msgpack", where=where)
    import msgpack

    unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=max(len(data), 1))
    unpacker.feed(data)
    read = 0
    while True:
        try:
            value = unpacker.unpack()
        except msgpack.OutOfData:
            break
        except (ValueError, msgpack.UnpackException, RecursionError) as fault:
            what = str(fault) or type(fault).__name__
            raise InputError(f"not MessagePack: {what}", where=where) from None
        read = unpacker.tell()
        yield value
    if read < len(data):
        raise InputError("MessagePack ends in the middle of a value", where=where)


def _gaps(sequences: list[int]) -> list[str]:
    """Sentences on frames that are missing in the sequence numbers."""
    lost = sum(max(after - before - 1, 0) for before, after in pairwise(sequences))
    back = sum(after <= before for before, after in pairwise(sequences))
    notes = []
    if lost:
        notes.append(f"{lost:,} batches are missing by their numbers: the cached set is not exact")
    if back:
        notes.append(
            f"{back:,} batches are out of order: the publisher restarted, or several are mixed"
        )
    return notes
