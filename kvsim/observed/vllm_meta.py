"""meta.json of a vLLM engine."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, PrivateAttr

from kvsim.engine.replica import ReplicaSpec
from kvsim.engine.schedulers.continuous_options import Continuous
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.paged.options import Paged
from kvsim.observed.meta import RunMeta
from kvsim.observed.vllm_defaults import Assumed, assumed, release
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.step_time.calibrated.identity import ModelIdentity

_NEWEST_0_11 = (0, 11)
_SPARE_BLOCKS = 2  # the null block, and one for the unused last token


class VllmMeta(RunMeta):
    """A vLLM engine's settings under vLLM's names. Only the number of blocks matters, so one token
    counts as one byte of KV.

    Settings that are null or missing get the defaults of `kvsim.observed.vllm_defaults`.
    num_gpu_blocks is None if the size of the pool was not recorded.
    """

    vllm_version: str
    max_num_seqs: PositiveInt
    max_num_batched_tokens: PositiveInt
    num_gpu_blocks: Annotated[int, Field(ge=2)] | None
    enable_prefix_caching: bool
    enable_chunked_prefill: bool = True
    async_scheduling: bool
    scheduler_reserve_full_isl: bool = True
    long_prefill_token_threshold: NonNegativeInt = 0
    policy: Literal["fcfs", "priority"] = "fcfs"
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    _assumed: dict[str, Assumed] = PrivateAttr(default_factory=dict)

    @classmethod
    def parse(cls, table: Mapping[str, Any], where: str) -> Self:
        """Parse a table as `Options.parse` does; settings that are null get defaults, which are
        listed in `assumptions`.
        """
        given = {name: value for name, value in table.items() if value is not None}
        missing = assumed(given)
        found = super().parse(given | {name: one.value for name, one in missing.items()}, where)
        found._assumed = missing
        return found

    @property
    def assumptions(self) -> tuple[str, ...]:
        return tuple(
            f"{name}: {why}" if value is None else f"{name} = {json.dumps(value)}: {why}"
            for name, (value, why) in self._assumed.items()
        )

    @property
    def pool_recorded(self) -> bool:
        return "num_gpu_blocks" not in self._assumed

    @property
    def shares_prompts(self) -> bool:
        return self.enable_prefix_caching

    def serving(self, requests: Sequence[Request]) -> Self:
        if self.num_gpu_blocks is not None:
            return self
        blocks = sum(
            ceil_div(request.prompt_tokens + request.output_tokens, self.block_size)
            for request in requests
        )
        return self.model_copy(update={"num_gpu_blocks": blocks + _SPARE_BLOCKS})

    @property
    def engine(self) -> str:
        return f"vLLM {self.vllm_version}"

    def facts(self) -> list[tuple[str, str]]:
        return [
            ("engine", self.engine),
            ("blocks", self._blocks()),
            ("scheduling", "asynchronous" if self.async_scheduling else "synchronous"),
            ("prefix caching", "on" if self.enable_prefix_caching else "off"),
        ]

    def _blocks(self) -> str:
        number = f"{self.num_gpu_blocks:,}" if self.pool_recorded else "not recorded,"
        return f"{number} of {self.block_size} tokens"

    def engine_facts(self) -> dict[str, Any]:
        return {"vllm_version": self.vllm_version}

    def model_identity(self) -> ModelIdentity:
        return ModelIdentity.named(self.model)

    def scheduler_options(self) -> Continuous:
        table = self.model_dump(
            include={
                "max_num_seqs",
                "max_num_batched_tokens",
                "enable_chunked_prefill",
                "long_prefill_token_threshold",
                "policy",
                "async_scheduling",
            }
        )
        if release(self.vllm_version) <= _NEWEST_0_11:
            table["semantics"] = "vllm-0.11"
        else:
            table["scheduler_reserve_full_isl"] = self.scheduler_reserve_full_isl
        return Continuous.parse(table, "meta.json")

    def replica_spec(self) -> ReplicaSpec:
        assert self.num_gpu_blocks is not None  # `serving` sets it if unknown
        return ReplicaSpec(
            Paged.parse(
                {
                    "block_size": self.block_size,
                    "enable_prefix_caching": self.enable_prefix_caching,
                    "watermark": self.watermark,
                },
                "meta.json",
            ),
            self.scheduler_options(),
            capacity_bytes=self.num_gpu_blocks * self.block_size,
            layout=KVLayout((KVGroup("full", 1, 1),)),
            max_model_len=self.max_model_len,
            copy_bytes_per_s=1,
            host_bytes_per_s=1,
            max_steps=1,
        )
