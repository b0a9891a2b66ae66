"""Convert KV tiers of a scenario to flags of `vllm serve` and back: --kv-offloading-size and
--kv-transfer-config (vLLM 0.33, config/vllm.py).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvsim.engine.connectors import TIERS
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import GIB

NATIVE, SIMPLE = "OffloadingConnector", "SimpleCPUOffloadConnector"
MULTI = "MultiConnector"
LMCACHE = "LMCacheConnectorV1"
_KINDS = {NATIVE: "vllm-offloading", SIMPLE: "vllm-simple-offloading"}
# Keys of kv_connector_extra_config that a tier has by the same name.
_EXTRA = (
    *("blocks_per_chunk", "eviction_policy", "store_threshold", "max_tracker_size"),
    *("offload_prompt_only", "sync_load_budget_bytes", "lazy_offload"),
)
_THREADS = ("n_read_threads", "n_write_threads")


def tiers_of(
    size_gib: float | None, transfer: Mapping[str, Any] | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """The tables [[tier]] for a server with these flags, and notes on unread keys."""
    if transfer is None:
        if size_gib is None:
            return [], []
        return [{"kind": _KINDS[NATIVE], "kv_offloading_size": size_gib}], []
    name = transfer.get("kv_connector")
    if name == LMCACHE and "max_local_cpu_size" in (
        transfer.get("kv_connector_extra_config") or {}
    ):
        return _of_lmcache(transfer)
    if name == MULTI:
        return _tiers_among(size_gib, transfer)
    extra = transfer.get("kv_connector_extra_config") or {}
    num_bytes = extra.get("cpu_bytes_to_use")
    gib = num_bytes / GIB if num_bytes else size_gib
    if name not in _KINDS or gib is None:
        return [], [f"kv_transfer_config: the connector {name} is not simulated from flags"]
    known = set(TIERS.get(_KINDS[name]).model_fields)
    first = {"kind": _KINDS[name], "kv_offloading_size": gib}
    first |= {key: extra[key] for key in _EXTRA if key in extra and key in known}
    tiers, read = [first], {*_EXTRA, "cpu_bytes_to_use", "spec_name", "secondary_tiers"}
    notes = [f"kv_connector_extra_config.{key} is not read" for key in extra if key not in read]
    for tier in extra.get("secondary_tiers") or ():
        if tier.get("type") != "fs" or len(tiers) > 1:
            notes.append(f"the tier of type {tier.get('type')} is not simulated")
            continue
        threads = {key: tier[key] for key in _THREADS if key in tier}
        tiers.append({"kind": "file-system"} | threads)
    return tiers, notes


def _of_lmcache(transfer: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """The tier `lmcache` for LMCache's host memory, of max_local_cpu_size GiB."""
    size = transfer["kv_connector_extra_config"]["max_local_cpu_size"]
    return [{"kind": "lmcache", "max_local_cpu_size": size}], []


def _tiers_among(
    size_gib: float | None, transfer: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The tables [[tier]] and notes for a MultiConnector; only one of its connectors may hold
    tiers.
    """
    extra = transfer.get("kv_connector_extra_config") or {}
    found: list[dict[str, Any]] = []
    notes: list[str] = []
    for each in extra.get("connectors") or ():
        keeps = each.get("kv_connector") in _KINDS
        if keeps and found:
            notes.append(f"kv_transfer_config: {each['kv_connector']} is a second one, not read")
            continue
        tiers, more = tiers_of(size_gib if keeps else None, each)
        found, notes = found + tiers, notes + more
    return found, notes


def without_flag_of(tiers: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """(key, value) for each key of the tiers that no flag sets and that is not at its default."""
    told = {"kind", "kv_offloading_size", *_EXTRA, *_THREADS}
    for at, tier in enumerate(tiers):
        usual = TIERS.get(tier["kind"]).model_fields
        for key, value in tier.items():
            if key not in told and value != usual[key].default:
                yield f"tier.{at}.{key}", value


def flags_of(tiers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The flags for a scenario's tiers, whether or not defaults are written out."""
    if not tiers:
        return
    first, *behind = tiers
    if first["kind"] not in _KINDS.values():
        raise InputError(
            "only vLLM's own connectors are written as flags",
            where="tier.0.kind",
            value=first["kind"],
            limit=", ".join(_KINDS.values()),
            remedy="leave [[tier]] out",
        )
    usual = TIERS.get(first["kind"]).model_fields
    extra = {key: first[key] for key in _EXTRA if key in first and first[key] != usual[key].default}
    if first["kind"] == _KINDS[NATIVE] and not extra and not behind:
        yield from ("--kv-offloading-size", f"{first['kv_offloading_size']:g}")
        return
    extra["cpu_bytes_to_use"] = int(first["kv_offloading_size"] * GIB)
    if behind:
        extra["spec_name"] = "TieringOffloadingSpec"
        extra["secondary_tiers"] = [
            {"type": "fs", "root_dir": "/kv"} | {key: tier[key] for key in _THREADS if key in tier}
            for tier in behind
        ]
    name = next(name for name, kind in _KINDS.items() if kind == first["kind"])
    config = {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}
    yield from ("--kv-transfer-config", json.dumps(config))
