"""The table [fleet] for the replicas that sources describe."""

from collections.abc import Callable, Sequence
from typing import Any

from kvsim.engine.connectors import TIERS
from kvsim.interchange.merge import POOL, servers_among
from kvsim.plumbing.errors import InputError
from kvsim.readers.description import ServerSettings
from kvsim.readers.detect import Read
from kvsim.support.parts import LOCKSTEP

_RANK_ROUTERS = {"vllm": "vllm-dp", "sglang": "sglang-dp"}


def fleet_of(
    settings: ServerSettings,
    reads: Sequence[Read],
    memory_of: Callable[[ServerSettings], dict[str, Any]],
    table: dict[str, Any],
    notes: list[str],
) -> dict[str, Any] | None:
    """The table [fleet]; None for a single replica. memory_of gives the table [memory] for
    settings. table has the scenario so far.

    Each of several servers with logs or metrics becomes a replica; servers with different pools
    become groups. The data-parallel ranks of a server become replicas of a cell with its own
    balancer.
    """
    ranks = settings.data_parallel_size or 1
    engine = settings.engine or "vllm"
    if ranks > 1 and engine not in _RANK_ROUTERS:
        notes.append(f"data_parallel_size = {ranks}: kvsim simulates one rank")
        ranks = 1
    servers = servers_among(reads)
    count = settings.replicas or max(1, len(servers))
    if len(servers) > 1:
        stated = ", ".join(each.name for each in servers)
        notes.append(f"{stated} belong to {len(servers)} servers: each becomes a replica")
        if count != len(servers):
            raise InputError(
                "as many servers left files as the manifest has replicas, or one",
                where="replicas",
                value=count,
                limit=str(len(servers)),
            )
    if count * ranks == 1:
        return None
    fleet: dict[str, Any] = {"replicas": count * ranks}
    if len(servers) > 1 and ranks == 1:
        pools: list[tuple[dict[str, Any], int]] = []
        for each in servers:
            own = {k: v for k, v in each.description.settings.reported().items() if k in POOL}
            memory = memory_of(settings.model_copy(update=dict.fromkeys(POOL) | own))
            if pools and pools[-1][0] == memory:
                pools[-1] = memory, pools[-1][1] + 1
            else:
                pools.append((memory, 1))
        if len(pools) > 1:
            fleet = {"group": [{"replicas": num, "memory": memory} for memory, num in pools]}
    if ranks > 1:
        fleet["router"] = {"kind": _RANK_ROUTERS[engine]}
        if "data_parallel_size" in table["model"]:
            needs = _lockstep_needs(engine, table)
            fleet["router"] |= {} if needs else {"lockstep": True}
            if needs:
                notes.append(
                    "ranks of shared experts step together: fleet.router.lockstep = true simulates "
                    f"it, with {needs}"
                )
        if count > 1:
            fleet["cells"] = count
    else:
        fleet["router"] = {"kind": settings.router or "round-robin"}
        if settings.router is None:
            notes.append("no source names the router: round-robin is taken")
    return fleet


def _lockstep_needs(engine: str, table: dict[str, Any]) -> str:
    """Changes of the scenario `table` without which ranks cannot step together; "": none."""
    if engine == "sglang":
        cached = any(each.get("enable_hierarchical_cache") for each in table["allocator"])
        return "enable_hierarchical_cache = false" if cached else ""
    served = all(LOCKSTEP in TIERS.get(each["kind"]).serves for each in table.get("tier", ()))
    return "" if served else 'tiers of kind = "vllm-offloading" or "file-system" alone'
