"""Scaling by the share of the KV pools in use."""

from typing import ClassVar

from pydantic import Field

from kvsim.fleet.scaling.options import AutoscalerOptions, FleetState


class KvUse(AutoscalerOptions):
    """Scale by KV cache usage. kv_usage: target share of a replica's pool in use
    (`vllm:kv_cache_usage_perc`), 0 to 1.
    """

    needs_kv_usage: ClassVar[bool] = True

    kv_usage: float = Field(0.8, gt=0, le=1)

    def total(self, state: FleetState) -> float:
        return sum(load.kv_usage for load in state.loads)

    @property
    def target(self) -> float:
        return self.kv_usage
