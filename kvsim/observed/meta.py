"""meta.json of an observed run: a real engine's settings, and the simulated engine they make."""

from abc import abstractmethod
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt

from kvsim.engine.schedulers.continuous import Continuous
from kvsim.engine.schedulers.scheduler import SchedulerOptions
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.allocator import AllocatorOptions, MemorySpec
from kvsim.memory.paged.options import Paged
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.scenario import AnyAllocator, AnyScheduler
from kvsim.step_time.calibrated.identity import ModelIdentity

_NEWEST_0_11 = (0, 11)


class RunMeta(Options):
    """What every recording tells; what else the file says is for the reader.

    block_size: tokens an id of stream.jsonl stands for. tick_seconds: between rows of the time
    series. clock_ahead_s: by how much the clock of the time series is ahead of that of the
    requests; None: found from the two.
    """

    model_config = ConfigDict(extra="ignore")

    model: str
    gpu: str
    tensor_parallel_size: PositiveInt = 1
    max_model_len: PositiveInt
    block_size: PositiveInt
    tick_seconds: Annotated[float, Field(gt=0)] = 1.0
    clock_ahead_s: float | None = None
    source: str = ""

    @property
    @abstractmethod
    def engine(self) -> str:
        """The engine in words."""

    @abstractmethod
    def facts(self) -> list[tuple[str, str]]:
        """Its settings in words, for a page."""

    @abstractmethod
    def told(self) -> dict[str, Any]:
        """What `--json` says of the engine."""

    @abstractmethod
    def model_identity(self) -> ModelIdentity:
        """Whose step times it had."""

    @abstractmethod
    def scheduler_options(self) -> SchedulerOptions:
        """Its scheduler."""

    @abstractmethod
    def allocator_options(self) -> AllocatorOptions:
        """Its allocator."""

    @abstractmethod
    def memory_spec(self) -> MemorySpec:
        """Its pool."""


class Meta(RunMeta):
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


class ObservedMeta(RunMeta):
    """A run of kvsim's own scheduler and allocator on its torch backend (`kvsim observe`).

    kvsim: its version. label, clock: of the allocator, and what the times were read from.
    copy_bytes_per_s: what the simulated device copies, bytes read and written.
    """

    kvsim: str
    label: str
    clock: str
    identity: ModelIdentity
    allocator: AnyAllocator
    scheduler: AnyScheduler
    capacity_bytes: PositiveInt
    kv_bytes_per_token: PositiveInt
    copy_bytes_per_s: PositiveInt

    @property
    def engine(self) -> str:
        return f"kvsim {self.kvsim} on torch, {self.label}"

    def facts(self) -> list[tuple[str, str]]:
        tokens = self.capacity_bytes // self.kv_bytes_per_token
        return [("engine", self.engine), ("pool", f"{tokens:,} tokens"), ("clock", self.clock)]

    def told(self) -> dict[str, Any]:
        return {"kvsim_version": self.kvsim, "allocator": self.label, "clock": self.clock}

    def model_identity(self) -> ModelIdentity:
        return self.identity

    def scheduler_options(self) -> SchedulerOptions:
        return self.scheduler

    def allocator_options(self) -> AllocatorOptions:
        return self.allocator

    def memory_spec(self) -> MemorySpec:
        return MemorySpec(
            capacity_bytes=self.capacity_bytes,
            layout=KVLayout((KVGroup("full", 1, self.kv_bytes_per_token),)),
            max_model_len=self.max_model_len,
            copy_bytes_per_s=self.copy_bytes_per_s,
            hash_lag=self.scheduler.depth - 1,
            semantics=self.scheduler.rules,
        )


def parse_meta(table: dict[str, Any], where: str) -> Meta | ObservedMeta:
    """The settings in a file: kvsim's own where it names kvsim, else vLLM's."""
    return (ObservedMeta if "kvsim" in table else Meta).parse(table, where)


def _release(version: str) -> tuple[int, int]:
    try:
        major, minor = version.removeprefix("v").split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        raise InputError(
            "not a version", where="meta.json.vllm_version", value=version, limit="such as 0.19.0"
        ) from None
