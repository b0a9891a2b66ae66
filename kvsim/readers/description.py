"""Descriptions of a server and its traffic, each as partial as its source.

Settings go by vLLM's names, whatever engine they are of. Times are whole nanoseconds on a clock of
the source's own; the caller says which clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from kvsim.memory.radix.hicache.options import PrefetchPolicy, WritePolicy
from kvsim.observed.logged_steps import LoggedStep
from kvsim.plumbing.options import Options
from kvsim.workload.traces.record import HashIds

Engine = Literal["vllm", "sglang", "tensorrt-llm", "llama.cpp"]
# unix: since 1970. local: the wall clock of some time zone, year unknown. run: from the first
# arrival. own: any other origin.
Clock = Literal["unix", "local", "run", "own"]
NS_PER_S = 10**9


class ServerSettings(Options):
    """Settings of a server; None: not reported. Memory figures are of one GPU.

    free_memory_gib: of a GPU before it loads weights.
    model: an id or a path, as on the engine's command line; served_model_name: as clients call it.
    gpu_memory_gib: what the device has. num_gpu_blocks: of the engine's own blocks, which hold a
    group of layers each. kv_cache_tokens: as the engine prints it. available_kv_gib: for KV, to
    two digits; kv_cache_bytes: the same, exactly. host_cache_gib: of a tier in host memory.
    speculative_config: vLLM's, by its keys; with the acceptance that its log prints, by kvsim's.
    kv_transfer_config: vLLM's, by its keys. store_gb_per_s, load_gb_per_s: of copies from a device
    to its host and back, in GB (10**9 bytes) a second, as the server measured them.
    attention_dp_size: SGLang's copies of the attention; tensor_parallel_size, max_num_seqs and
    chunked_prefill_size are then of one of them. mem_fraction_static, mamba_full_memory_ratio:
    SGLang's. free_gpu_memory_fraction, capacity_policy: TensorRT-LLM's. From max_prefill_tokens
    on: SGLang's, by its names. From n_ctx on: llama-server's, by its names; n_ctx_seq: tokens of
    one slot at most. tuned: whether flags choose kernels as published benchmarks do.
    replicas: of the whole server; router: before them, by kvsim's name.
    """

    engine: Engine | None = None
    engine_version: str | None = None
    model: str | None = None
    served_model_name: str | None = None
    gpu: str | None = None
    gpu_memory_gib: PositiveFloat | None = None
    tensor_parallel_size: PositiveInt | None = None
    pipeline_parallel_size: PositiveInt | None = None
    data_parallel_size: PositiveInt | None = None
    attention_dp_size: PositiveInt | None = None
    replicas: PositiveInt | None = None
    router: str | None = None
    decode_context_parallel_size: PositiveInt | None = None
    enable_expert_parallel: bool | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    mamba_ssm_cache_dtype: str | None = None
    language_model_only: bool | None = None
    max_model_len: PositiveInt | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    enforce_eager: bool | None = None
    tuned: bool | None = None
    block_size: PositiveInt | None = None
    num_gpu_blocks: PositiveInt | None = None
    kv_cache_tokens: PositiveInt | None = None
    kv_cache_bytes: PositiveInt | None = None
    available_kv_gib: PositiveFloat | None = None
    weights_gib: PositiveFloat | None = None
    free_memory_gib: PositiveFloat | None = None
    host_cache_gib: PositiveFloat | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    disable_hybrid_kv_cache_manager: bool | None = None
    watermark: Annotated[float, Field(ge=0, lt=1)] | None = None
    prefix_cache_retention_interval: NonNegativeInt | None = None
    prefix_match_unit: PositiveInt | None = None
    max_cudagraph_capture_size: NonNegativeInt | None = None
    enable_lora: bool | None = None
    max_loras: PositiveInt | None = None
    max_lora_rank: PositiveInt | None = None
    max_cpu_loras: PositiveInt | None = None
    disable_chunked_mm_input: bool | None = None
    limit_mm_per_prompt: NonNegativeInt | None = None
    speculative_config: dict[str, Any] | None = None
    kv_transfer_config: dict[str, Any] | None = None
    store_gb_per_s: PositiveFloat | None = None
    load_gb_per_s: PositiveFloat | None = None
    mem_fraction_static: Annotated[float, Field(gt=0, lt=1)] | None = None
    mamba_full_memory_ratio: PositiveFloat | None = None
    max_total_tokens: PositiveInt | None = None
    free_gpu_memory_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    max_num_seqs: PositiveInt | None = None
    max_num_batched_tokens: PositiveInt | None = None
    long_prefill_token_threshold: NonNegativeInt | None = None
    scheduler_reserve_full_isl: bool | None = None
    policy: Literal["fcfs", "priority"] | None = None
    capacity_policy: Literal["guaranteed-no-evict", "max-utilization"] | None = None
    async_scheduling: bool | None = None
    max_prefill_tokens: PositiveInt | None = None
    chunked_prefill_size: Annotated[int, Field(ge=-1)] | None = None
    schedule_policy: Literal["fcfs", "lpm"] | None = None
    schedule_conservativeness: NonNegativeFloat | None = None
    enable_mixed_chunk: bool | None = None
    disable_overlap_schedule: bool | None = None
    enable_hierarchical_cache: bool | None = None
    hicache_ratio: PositiveFloat | None = None
    hicache_size: PositiveFloat | None = None
    hicache_write_policy: WritePolicy | None = None
    hicache_storage_backend: str | None = None
    hicache_storage_prefetch_policy: PrefetchPolicy | None = None
    n_ctx: PositiveInt | None = None
    n_ctx_seq: PositiveInt | None = None
    n_parallel: PositiveInt | None = None
    kv_unified: bool | None = None
    n_batch: PositiveInt | None = None
    n_ubatch: PositiveInt | None = None
    swa_full: bool | None = None
    cache_ram: Annotated[int, Field(ge=-1)] | None = None
    cache_reuse: NonNegativeInt | None = None
    cache_idle_slots: bool | None = None
    context_shift: bool | None = None
    ctx_checkpoints: NonNegativeInt | None = None
    slot_prompt_similarity: Annotated[float, Field(ge=0, le=1)] | None = None

    def reported(self) -> dict[str, Any]:
        """The settings that are not None."""
        return self.model_dump(exclude_none=True)


class SourceRequest(NamedTuple):
    """One request. arrival_ns: when its client sent it; None: not recorded.

    prompt_tokens, output_tokens: None where not recorded. hash_ids: ids of the prompt's
    blocks, small numbers, equal ids where all tokens up to the block's end are equal.
    first_token_ns, last_token_ns: on the clock of arrival_ns. cached_tokens: of its prompt, as the
    engine counted them.
    """

    id: str
    arrival_ns: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    hash_ids: HashIds | None = None
    session: str | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests in the order of the source. hash_block_tokens: tokens an id stands for."""

    rows: tuple[SourceRequest, ...]
    clock: Clock = "own"
    hash_block_tokens: int | None = None

    @classmethod
    def in_order(
        cls, rows: Iterable[SourceRequest], clock: Clock, hash_block_tokens: int | None = None
    ) -> "Requests | None":
        """The requests in order of arrival; None where there are none."""
        ordered = tuple(sorted(rows, key=lambda row: row.arrival_ns or 0))
        return cls(ordered, clock, hash_block_tokens) if ordered else None


class GaugeSample(NamedTuple):
    """The engine's gauges at one moment; usage: a fraction of the pool. None: not in it."""

    time_ns: int
    running: int | None = None
    waiting: int | None = None
    usage: float | None = None
    prompt_throughput: float | None = None
    generation_throughput: float | None = None


@dataclass(frozen=True, slots=True)
class GaugeSeries:
    """Gauges in order of time."""

    samples: tuple[GaugeSample, ...]
    clock: Clock


class ClientLoad(Options):
    """Load of a client that recorded no single requests.

    num_requests: that were answered. prompt_tokens, output_tokens: means. rate_per_s: None for all
    at once. max_concurrency: most requests in flight. duration_s: from its first request to its
    last answer. ended_local_ns: its end by a wall clock, as if that were UTC.
    """

    num_requests: PositiveInt
    prompt_tokens: NonNegativeFloat
    output_tokens: NonNegativeFloat
    rate_per_s: PositiveFloat | None = None
    burstiness: PositiveFloat = 1.0
    max_concurrency: PositiveInt | None = None
    duration_s: PositiveFloat | None = None
    ended_local_ns: int | None = None


class Scrape(NamedTuple):
    """Counters of one scrape of /metrics.

    started_s: when its server started, since 1970; None: not in it. sums: of each metric over its
    labels, by the name without the engine's prefix.
    """

    started_s: float | None
    sums: dict[str, float]


@dataclass(frozen=True, slots=True)
class Description:
    """The content of one source.

    by_file: settings of several runs, by the names of the files with their requests: those of a
    file that is imported too count. measured: figures of the run, by name and unit (`ttft_mean_s`),
    for whoever compares. steps: what the server's own log says of its steps, in its order. missing:
    variables without a value in the file, by the setting each is; of words that may be flags, by
    "". scrape: of a scrape of /metrics. model_config: a model's config.json. role: "prefill" or
    "decode" of a server that does one of both. notes: what was left out, and why.
    """

    settings: ServerSettings = field(default_factory=ServerSettings)
    requests: Requests | None = None
    gauges: GaugeSeries | None = None
    load: ClientLoad | None = None
    measured: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    by_file: dict[str, ServerSettings] = field(default_factory=dict)
    steps: tuple[LoggedStep, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    scrape: Scrape | None = None
    model_config: dict[str, Any] | None = None
    role: str | None = None


def transfer_notes(measured: Mapping[str, float]) -> tuple[str, ...]:
    """Sentences on the measured transfers that a deployment of prefill and decode replicas uses."""
    speed = measured.get("kv_transfer_gb_per_s")
    if speed is None:
        return ()
    said = f"KV transfers ran at {speed:.3g} GB/s on average"
    return (f"{said}: give a scenario with [disaggregation] link_gb_per_s = {speed:.3g}",)
