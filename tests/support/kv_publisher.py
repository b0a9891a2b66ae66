"""KV events as vLLM's publisher encodes them, byte by byte: msgspec structs in a batch that is an
array; the events in it are arrays up to 0.23 and maps since (vllm/distributed/kv_events.py of 0.22,
0.24 and 0.33).
"""

from typing import Any

import msgspec


def structs(*, maps: bool) -> tuple[type, type, type, type]:
    """(batch, BlockStored, BlockRemoved, AllBlocksCleared) with vLLM's fields in vLLM's order."""
    form: dict[str, Any] = {"array_like": not maps, "omit_defaults": True}
    later: list[Any] = [("locality", str | None, None), ("ownership", str | None, None)]
    batch = msgspec.defstruct(
        "KVEventBatch",
        [("ts", float), ("events", list[Any]), ("data_parallel_rank", int | None, None)],
        array_like=True,
        omit_defaults=True,
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
            ("lora_name", str | None),
            ("extra_keys", Any, None),
            ("group_idx", int | None, None),
            ("kv_cache_spec_kind", str | None, None),
            ("kv_cache_spec_sliding_window", int | None, None),
            *(later if maps else []),
            *([("session_id", str | None, None)] if maps else []),
            *([("lookahead_token_ids", Any, None)] if maps else []),
        ],
        tag=True,
        **form,
    )
    removed = msgspec.defstruct(
        "BlockRemoved",
        [
            ("block_hashes", list[Any]),
            ("medium", str | None),
            ("group_idx", int | None, None),
            *(later if maps else []),
        ],
        tag=True,
        **form,
    )
    cleared = msgspec.defstruct("AllBlocksCleared", [], tag=True, **form)
    return batch, stored, removed, cleared


def frame(sequence: int, payload: bytes) -> bytes:
    """A multipart message, topic first, as a recorder keeps it."""
    return msgspec.msgpack.encode([b"", sequence.to_bytes(8, "big"), payload])
