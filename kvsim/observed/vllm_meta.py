"""meta.json of a vLLM engine."""

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from kvsim.engine.schedulers.continuous import Continuous
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.allocator import MemorySpec
from kvsim.memory.paged.options import Paged
from kvsim.observed.meta import RunMeta
from kvsim.plumbing.errors import InputError
from kvsim.step_time.calibrated.identity import ModelIdentity

_NEWEST_0_11 = (0, 11)


class VllmMeta(RunMeta):
    """A vLLM engine's settings, by vLLM's names. Only counts of its blocks matter, so a token
    weighs one byte.
    """

    vllm_version: str
    max_num_seqs: PositiveInt
    max_num_batched_tokens: PositiveInt
    num_gpu_blocks: Annotated[int, Field(ge=2)]
    enable_prefix_caching: bool
    enable_chunked_prefill: bool = True
    async_scheduling: bool
    scheduler_reserve_full_isl: bool = True
    long_prefill_token_threshold: NonNegativeInt = 0
    policy: Literal["fcfs", "priority"] = "fcfs"
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @property
    def engine(self) -> str:
        return f"vLLM {self.vllm_version}"

    def facts(self) -> list[tuple[str, str]]:
        return [
            ("engine", self.engine),
            ("blocks", f"{self.num_gpu_blocks:,} of {self.block_size} tokens"),
            ("scheduling", "asynchronous" if self.async_scheduling else "synchronous"),
            ("prefix caching", "on" if self.enable_prefix_caching else "off"),
        ]

    def told(self) -> dict[str, Any]:
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
        if _release(self.vllm_version) <= _NEWEST_0_11:
            table["semantics"] = "vllm-0.11"
        else:
            table["scheduler_reserve_full_isl"] = self.scheduler_reserve_full_isl
        return Continuous.parse(table, "meta.json")

    def allocator_options(self) -> Paged:
        return Paged(
            block_size=self.block_size,
            enable_prefix_caching=self.enable_prefix_caching,
            watermark=self.watermark,
        )

    def memory_spec(self) -> MemorySpec:
        options = self.scheduler_options()
        return MemorySpec(
            capacity_bytes=self.num_gpu_blocks * self.block_size,
            layout=KVLayout((KVGroup("full", 1, 1),)),
            max_model_len=self.max_model_len,
            copy_bytes_per_s=1,
            hash_lag=options.depth - 1,
            semantics=options.rules,
        )


def _release(version: str) -> tuple[int, int]:
    try:
        major, minor = version.removeprefix("v").split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        raise InputError(
            "not a version", where="meta.json.vllm_version", value=version, limit="such as 0.19.0"
        ) from None
