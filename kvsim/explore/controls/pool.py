"""The control of the pool: a share of the device, or a number of bytes, tokens or blocks."""

from typing import Any, ClassVar

from dash.development.base_component import Component

from kvsim.capacity.options import WAYS, MemoryOptions
from kvsim.explore.controls.control import Control
from kvsim.explore.widgets import choice, labelled, typed

_WAY = "memory.given as"
# Where another way of saying it begins: about 12 GiB under a model of 13 billion parameters.
_FIRST = {
    "gpu_memory_utilization": 0.9,
    "kv_cache_bytes": 12 << 30,
    "kv_cache_tokens": 16000,
    "num_gpu_blocks": 1000,
    "mem_fraction_static": 0.85,
    "free_gpu_memory_fraction": 0.9,
}


class PoolControl(Control):
    """A choice of how to size the pool, and the number."""

    title: ClassVar[str] = "Pool"
    is_open: ClassVar[bool] = True

    def widgets(self, table: dict[str, Any]) -> list[Component]:
        memory = table.get("memory", {})
        way = next((each for each in WAYS if each in memory), WAYS[0])
        default = MemoryOptions.parse(memory, "memory").utilization if way == WAYS[0] else None
        return [
            labelled("given as", choice(_WAY, WAYS, way)),
            labelled(way, typed(f"memory.{way}", memory.get(way), default)),
        ]

    def chosen(self, table: dict[str, Any], key: str, value: Any) -> bool:
        if key != _WAY:
            return False
        memory = {k: v for k, v in table.get("memory", {}).items() if k not in WAYS}
        table["memory"] = {**memory, value: _FIRST[value]}
        return True
