"""Scaling by the share of the KV pools in use."""

from collections.abc import Sequence

from pydantic import Field

from kvsim.fleet.scaling.options import AutoscalerOptions, FleetState


class KvUse(AutoscalerOptions):
    """Scale by KV cache usage. kv_usage: target share of a replica's pool in use
    (`vllm:kv_cache_usage_perc`), 0 to 1.
    """

    kv_usage: float = Field(0.8, gt=0, le=1)

    @property
    def needs_kv_usage(self) -> bool:
        return True

    def needed(self, state: FleetState) -> Sequence[float]:
        return [state.kv_usage / self.kv_usage]
