"""Autoscaler with several targets: the target that needs the most replicas decides."""

from collections.abc import Sequence

from pydantic import Field, model_validator

from kvsim.fleet.scaling.options import AutoscalerOptions, FleetState


class SeveralTargets(AutoscalerOptions):
    """Scale by several targets (`metrics` of an HPA, `triggers` of KEDA); the target that needs the
    most replicas decides. kv_usage, waiting, ongoing, rate_per_s: targets of the kinds `kv-use`,
    `queue`, `requests` and `rate`; at least one is given.
    """

    kv_usage: float | None = Field(None, gt=0, le=1)
    waiting: float | None = Field(None, gt=0)
    ongoing: float | None = Field(None, gt=0)
    rate_per_s: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _some(self) -> "SeveralTargets":
        if not any((self.kv_usage, self.waiting, self.ongoing, self.rate_per_s)):
            raise ValueError("give at least one of kv_usage, waiting, ongoing, rate_per_s")
        return self

    @property
    def needs_kv_usage(self) -> bool:
        return self.kv_usage is not None

    def needed(self, state: FleetState) -> Sequence[float]:
        pairs = [
            (state.kv_usage, self.kv_usage),
            (state.waiting, self.waiting),
            (state.ongoing, self.ongoing),
            (state.rate_per_s, self.rate_per_s),
        ]
        return [load / target for load, target in pairs if target is not None]
