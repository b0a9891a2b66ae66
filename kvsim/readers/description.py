"""A source's content in one form: a server and its traffic. Most sources give only a part.

Settings have vLLM's names, also for other engines. Times are whole nanoseconds on the source's own
clock; each record says which clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from kvsim.engine.schedulers.sglang.policies import PolicyName
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
    """Settings of a server; None: not reported. Memory figures are per GPU.

    model is an id or a path, as on the engine's command line; served_model_name is the name that
    clients send. gpu_memory_gib is the GPU's size, free_memory_gib what was free before the weights
    were loaded. num_gpu_blocks counts the engine's own blocks, each of which holds one group of
    layers. kv_cache_tokens is the KV pool's size as the engine prints it. available_kv_gib is the
    pool's size to two digits, kv_cache_bytes the exact size. host_cache_gib is the size of a KV
    tier in host memory.

    speculative_config has vLLM's keys, and kvsim's key for an acceptance rate that the log prints.
    kv_transfer_config has vLLM's keys. store_gb_per_s and load_gb_per_s are measured rates of
    copies from the GPU to the host and back, in GB (10**9 bytes) per second.

    attention_dp_size is SGLang's number of data-parallel attention ranks; tensor_parallel_size,
    max_num_seqs and chunked_prefill_size are then per rank. mem_fraction_static and
    mamba_full_memory_ratio are SGLang's. free_gpu_memory_fraction and capacity_policy are
    TensorRT-LLM's. Fields from max_prefill_tokens on are SGLang's, those from n_ctx on
    llama-server's, under their names. n_ctx_seq is the largest number of tokens in one slot. tuned:
    flags choose kernels as published benchmarks do. replicas is the number of copies of the whole
    server, router the kvsim name of the router in front.
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
    pp_max_micro_batch_size: PositiveInt | None = None
    schedule_policy: PolicyName | None = None
    enable_priority_scheduling: bool | None = None
    schedule_low_priority_values_first: bool | None = None
    priority_scheduling_preemption_threshold: NonNegativeInt | None = None
    disable_priority_preemption: bool | None = None
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
        """The settings that are not None, as a dict."""
        return self.model_dump(exclude_none=True)


class SourceRequest(NamedTuple):
    """One request of a source. None: not recorded.

    arrival_ns is when the client sent the request; first_token_ns and last_token_ns are on the same
    clock. hash_ids has an id (a small integer) per block of the prompt; ids are equal where all
    tokens up to the block's end are equal. cached_tokens counts prompt tokens that the engine found
    in its prefix cache.
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
    """Requests in the order of the source. hash_block_tokens is the number of tokens
    per hash id.
    """

    rows: tuple[SourceRequest, ...]
    clock: Clock = "own"
    hash_block_tokens: int | None = None

    @classmethod
    def in_order(
        cls, rows: Iterable[SourceRequest], clock: Clock, hash_block_tokens: int | None = None
    ) -> "Requests | None":
        """The requests sorted by arrival; None if there are none."""
        ordered = tuple(sorted(rows, key=lambda row: row.arrival_ns or 0))
        return cls(ordered, clock, hash_block_tokens) if ordered else None


class GaugeSample(NamedTuple):
    """The engine's gauges at one time. usage is a fraction of the KV pool. None: not reported."""

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
    """The mean load of a client, for sources without single requests.

    num_requests counts answered requests. prompt_tokens and output_tokens are mean lengths.
    rate_per_s is the request rate; None: all at once. max_concurrency limits requests in flight.
    duration_s lasts from the first request to the last answer. ended_local_ns is the end by a wall
    clock in an unknown time zone, read as if it were UTC.
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

    started_s is the Unix time at which the server started; None: not reported. sums has each metric
    summed over its labels, under its name without the engine's prefix.
    """

    started_s: float | None
    sums: dict[str, float]


@dataclass(frozen=True, slots=True)
class Description:
    """The content of one source.

    by_file has settings of several runs, by the name of the file with each run's requests. Of these
    the run counts that has its requests among the imported files. measured has figures such as
    `ttft_mean_s`, for comparisons. steps has the steps that the server's log reports. missing maps
    a setting to the shell variable that the file gives without a value; under "" is a variable in
    words that may be flags. scrape has the counters of /metrics. model_config is a model's
    config.json. role is "prefill" or "decode" for one side of a disaggregated pair. notes say what
    was left out, and why.
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
    """A sentence on the measured bandwidth of KV transfers, which a disaggregated
    scenario can use.
    """
    speed = measured.get("kv_transfer_gb_per_s")
    if speed is None:
        return ()
    said = f"KV transfers ran at {speed:.3g} GB/s on average"
    return (f"{said}: give a scenario with [disaggregation] link_gb_per_s = {speed:.3g}",)
