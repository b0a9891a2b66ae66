"""KV events as vLLM's publisher encodes them: msgspec structs, as arrays or (newer) as maps."""

from typing import Any

import msgspec


def structs(*, maps: bool) -> tuple[type, type, type, type]:
    """(batch, BlockStored, BlockRemoved, AllBlocksCleared) with vLLM's fields in vLLM's order."""
    form: dict[str, Any] = {"array_like": not maps, "omit_defaults": True}
    batch = msgspec.defstruct(
        "KVEventBatch",
        [("ts", float), ("events", list[Any]), ("data_parallel_rank", int | None, None)],
        **form,
    )
    stored = msgspec.defstruct(
        "BlockStored",
        [
            ("block_hashes", list[Any]),
            ("parent_block_hash", Any),
            ("token_ids", list[int]),
            ("block_size", int),
            ("lora_id", int | None),
            ("medium", str | None),
            ("lora_name", str | None, None),
            ("extra_keys", Any, None),
            ("group_idx", int | None, None),
        ],
        tag=True,
        **form,
    )
    removed = msgspec.defstruct(
        "BlockRemoved",
        [("block_hashes", list[Any]), ("medium", str | None), ("group_idx", int | None, None)],
        tag=True,
        **form,
    )
    cleared = msgspec.defstruct("AllBlocksCleared", [], tag=True, **form)
    return batch, stored, removed, cleared


def frame(sequence: int, payload: bytes) -> bytes:
    """A multipart message, topic first, as a recorder keeps it."""
    return msgspec.msgpack.encode([b"", sequence.to_bytes(8, "big"), payload])
