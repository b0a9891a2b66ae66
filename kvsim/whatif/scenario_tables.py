"""Changes of a scenario's tables: one key changed, one allocator only, or request lengths fixed."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvsim.memory.options import AllocatorOptions
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.keys import put
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

Table = dict[str, Any]
COUNTED = ("kv_cache_tokens", "num_gpu_blocks")  # pools given in other units than bytes


def allocator_alone(
    table: Table, folder: Path, wanted: Callable[[AllocatorOptions, str], bool]
) -> tuple[str, Table] | None:
    """The label of the first allocator that `wanted` accepts, and the tables with only this
    allocator; None if there is none. If the allocator names a scheduler, it becomes the scenario's.
    """
    scenario = Scenario.from_table(table, folder)
    entries = table["allocator"] if isinstance(table["allocator"], list) else [table["allocator"]]
    for entry, options, label in zip(entries, scenario.allocator, scenario.labels(), strict=True):
        if wanted(options, label):
            alone = copy.deepcopy(table)
            kept = {"kind": entry} if isinstance(entry, str) else dict(entry)
            if "scheduler" in kept:
                alone["scheduler"] = kept.pop("scheduler")
            alone["allocator"] = [kept]
            return label, alone
    return None


def is_paged(options: AllocatorOptions) -> bool:
    """Whether the allocator manages memory in blocks, as vLLM does."""
    return hasattr(options, "enable_prefix_caching")


def paged_alone(table: Table, folder: Path) -> tuple[str, Table]:
    """The tables with only the first paged allocator; InputError if there is none."""
    found = allocator_alone(table, folder, lambda options, _: is_paged(options))
    if found is None:
        raise InputError(
            "advice is for vLLM and its paged memory",
            where="allocator",
            remedy='name one of kind = "paged"',
        )
    return found


def with_value(table: Table, key: str, value: Any, where: str = "advise") -> Table:
    """The tables with one key set to this value; None removes the key."""
    table = copy.deepcopy(table)
    if isinstance(table.get("scheduler"), str):
        table["scheduler"] = {"kind": table["scheduler"]}
    put(table, key, value, where)
    if value is None:
        *outer, last = key.split(".")
        place: Any = table
        for part in outer:
            place = place[int(part) if isinstance(place, list) else part]
        del place[last]
    return table


def pinned(table: Table, max_model_len: int) -> Table:
    """The tables with the workload's length limits set to this many tokens if they follow
    max_model_len.

    So a change of max_model_len changes the server and not the requests.
    """
    table = copy.deepcopy(table)
    workload = table.get("workload")
    if isinstance(workload, dict):
        follows = [key for key, value in workload.items() if value == "max_model_len"]
        workload.update(dict.fromkeys(follows, max_model_len))
    return table


def sized_in_bytes(table: Table, folder: Path) -> Table:
    """The tables with the pool's size in bytes instead of tokens or blocks.

    So a change of the KV dtype or block size leaves the memory equal, and changes how many tokens
    fit.
    """
    memory = table.get("memory")
    if not isinstance(memory, dict) or not any(way in memory for way in COUNTED):
        return table
    capacity = Simulation(Scenario.from_table(table, folder), []).pool.capacity_bytes
    kept = {key: value for key, value in memory.items() if key not in COUNTED}
    return table | {"memory": kept | {"kv_cache_bytes": capacity}}


def pool_as_given(table: Table, own: Table) -> Table:
    """Undo `sized_in_bytes`: the changed tables with the pool's size in the user's own unit.

    It stays in bytes if the change alters the size of blocks or tokens. own: the user's tables.
    """
    memory, given = table.get("memory"), own.get("memory")
    if not isinstance(memory, dict) or not isinstance(given, dict):
        return table
    counted = {key: value for key, value in given.items() if key in COUNTED}
    rest = {key: value for key, value in memory.items() if key != "kv_cache_bytes"}
    kept = {key: value for key, value in given.items() if key not in COUNTED}
    alike = all(_part(table, *keys) == _part(own, *keys) for keys in _MAKE_BLOCKS)
    if not counted or "kv_cache_bytes" not in memory or rest != kept or not alike:
        return table
    return table | {"memory": rest | counted}


_MAKE_BLOCKS = (("model", "kv_cache_dtype"), ("allocator", "block_size"))


def _part(table: Table, part: str, key: str) -> Any:
    place = table.get(part)
    place = place[0] if isinstance(place, list) else place
    return place.get(key) if isinstance(place, dict) else None
