"""Combine a prefill and a decode server into one disaggregated scenario.

Flags give the roles (vLLM's kv_role, SGLang's disaggregation_mode), or names and labels in a
manifest do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvsim.fleet.disaggregation import SIDES, DisaggregationOptions
from kvsim.interchange.vllm_tiers import tiers_of
from kvsim.readers.detect import Read

_ENGINES = ("vllm", "sglang")
_OF_A_SIDE = ("model", "device", "memory", "allocator", "scheduler", "step_time")


def sides_among(reads: Sequence[Read]) -> tuple[Read, Read] | None:
    """The prefill and the decode server; None unless there is exactly one of each, both of one
    engine.
    """
    having = [each for each in reads if each.description.role is not None]
    by_role = {each.description.role: each for each in having}
    engines = {each.description.settings.engine for each in having}
    if len(having) != len(SIDES) or set(by_role) != set(SIDES):
        return None
    if len(engines) > 1 or not engines <= set(_ENGINES):
        return None
    prefill, decode = (by_role[side] for side in SIDES)
    return prefill, decode


def without_transfer(read: Read) -> Read:
    """The server without its KV transfer connector, unless the connector is simulated as a tier."""
    settings = read.description.settings
    tiers, _ = tiers_of(settings.host_cache_gib, settings.kv_transfer_config)
    if settings.kv_transfer_config is None or tiers:
        return read
    plain = settings.model_copy(update={"kv_transfer_config": None})
    return read._replace(description=replace(read.description, settings=plain))


def role_notes(reads: Sequence[Read]) -> list[str]:
    """A note for each prefill-only or decode-only server that is simulated as a complete server."""
    return [
        f"{each.name} is the {each.description.role} side of a pair: it is simulated as a server "
        "that computes both (one prefill and one decode server together become [disaggregation])"
        for each in reads
        if each.description.role is not None
    ]


def joined(prefill: Mapping[str, Any], decode: Mapping[str, Any]) -> dict[str, Any]:
    """One scenario from the tables of both servers: those of the decode server, and differing ones
    of the prefill server under [disaggregation].

    Tiers are taken from the prefill server.
    """
    table = {key: value for key, value in decode.items() if key not in ("fleet", "tier")}
    if "tier" in prefill:
        table["tier"] = prefill["tier"]
    of_prefill: dict[str, Any] = {"replicas": _replicas(prefill)}
    for name in _OF_A_SIDE:
        its_own, other = (_first(tables.get(name)) for tables in (prefill, decode))
        if its_own != other:
            of_prefill[name] = its_own
    sides = {"prefill": of_prefill, "decode": {"replicas": _replicas(decode)}}
    return table | {"disaggregation": sides}


def assumed_link() -> str:
    """A sentence on the assumed bandwidth of the link, which no flag gives."""
    speed = DisaggregationOptions.model_fields["link_gb_per_s"].default
    return f"disaggregation.link_gb_per_s = {speed}: no source has the speed of the link"


def _first(table: Any) -> Any:
    return table[0] if isinstance(table, list) else table


def _replicas(tables: Mapping[str, Any]) -> int:
    return int((tables.get("fleet") or {}).get("replicas", 1))
