"""The options of a disaggregated deployment: prompts are computed on other replicas than
outputs.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from kvsim.fleet.routers import ROUTERS
from kvsim.fleet.routers.options import RouterOptions
from kvsim.plumbing.choice import OneOf
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import PS_PER_S, PS_PER_US

SideRouter = Annotated[RouterOptions, OneOf(ROUTERS, "disaggregation.router", "round-robin")]
Table = dict[str, Any]
SIDES = ("prefill", "decode")
GB = 10**9


class SideOptions(Options):
    """Settings of the prefill replicas or of the decode replicas.

    model, device, memory, allocator, scheduler, step_time: tables with the keys that differ from
    the scenario's. A table with a kind or name, and memory always, replaces the scenario's table;
    other tables change single keys.
    """

    replicas: int = Field(1, ge=1, le=10_000)
    model: Table | None = None
    device: Table | None = None
    memory: Table | None = None
    allocator: Table | None = None
    scheduler: Table | None = None
    step_time: Table | None = None

    def tables(self) -> dict[str, Table]:
        """The scenario tables that differ on this side, by name."""
        names = ("model", "device", "memory", "allocator", "scheduler", "step_time")
        return {name: table for name in names if (table := getattr(self, name)) is not None}


class DisaggregationOptions(Options):
    """Prompts are computed on `prefill` replicas, outputs on `decode` replicas.

    router: chooses among several replicas of a kind; each kind has its own router. Under vLLM,
        kind "vllm-dp" with `lockstep` makes them data-parallel ranks that step together.
    link_gb_per_s: of the port of a GPU of each replica, in GB/s one way; link_latency_us: before
        each transfer. A port carries one transfer at a time.
    proxy_us: vLLM: from the prefill replica's answer to the arrival at the decode replica.
    handshake_us: vLLM: of the first contact with a replica; SGLang: until a request's receiver is
        ready. notice_us, notify_us: SGLang: until the prefill replica knows that there is room, and
        until both see that a transfer has ended.
    kv_lease_duration: vLLM: seconds for which an unread prompt is kept.
    failed_reads: share of the requests with a transfer that fails. They end with an error;
        kv_load_failure_policy: vLLM: "recompute" computes them on the decode replica.
    abandoned: share of the requests that the client cancels when the prompt is computed. vLLM's
        prefill replica keeps the prompt until the lease ends; SGLang frees it on both sides.
    bootstrap_timeout: SGLang: seconds after which a prefill replica ends a request for which no
        decode replica had room (SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT, 300). waiting_timeout:
        seconds for which a decode replica keeps room for a prompt that does not arrive
        (SGLANG_DISAGGREGATION_WAITING_TIMEOUT, 300).
    num_reserved_decode_tokens: SGLang: held back on the decode replica for the outputs of each
        request. decode_radix_cache: SGLang: the decode replica keeps a prefix cache.
    retraction_host_ratio: SGLang: host memory for retracted requests as a share of the decode pool
        (--hicache-ratio); 0.2 and at least one request of max_model_len unless given. A request
        without room there ends with an error. Not with decode_radix_cache, which has no limit.
    """

    prefill: SideOptions = SideOptions()
    decode: SideOptions = SideOptions()
    router: SideRouter = Field({"kind": "round-robin"}, validate_default=True)
    link_gb_per_s: float = Field(50.0, ge=1e-6, le=1e9)
    link_latency_us: float = Field(10.0, ge=0, le=1e9)
    proxy_us: float | None = Field(None, ge=0, le=1e9)
    handshake_us: float = Field(0.0, ge=0, le=1e9)
    notice_us: float | None = Field(None, ge=0, le=1e9)
    notify_us: float | None = Field(None, ge=0, le=1e9)
    kv_lease_duration: float | None = Field(None, gt=0, le=1e6)
    failed_reads: float | None = Field(None, ge=0, le=1)
    kv_load_failure_policy: Literal["fail", "recompute"] | None = None
    abandoned: float | None = Field(None, ge=0, le=1)
    bootstrap_timeout: float | None = Field(None, gt=0, le=1e6)
    waiting_timeout: float | None = Field(None, gt=0, le=1e6)
    num_reserved_decode_tokens: int | None = Field(None, ge=0)
    decode_radix_cache: bool | None = None
    retraction_host_ratio: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _all_of_use(self) -> Self:
        if self.kv_load_failure_policy is not None and self.failed_reads is None:
            raise ValueError("kv_load_failure_policy changes nothing without failed_reads")
        return self

    @property
    def link_bytes_per_s(self) -> int:
        """Bandwidth of a GPU's port in bytes/s, one way."""
        return max(1, round(self.link_gb_per_s * GB))

    @property
    def lease_ps(self) -> int:
        """How long in ps a prefill replica holds an unread prompt; 30 s unless given, as in
        vLLM.
        """
        return round((self.kv_lease_duration or 30.0) * PS_PER_S)

    def of(self, engine: str) -> tuple[str, ...]:
        """The given keys that apply only to the deployment of another engine than `engine`."""
        theirs = {
            "vllm": (
                *("notice_us", "notify_us", "num_reserved_decode_tokens"),
                *("decode_radix_cache", "retraction_host_ratio"),
                *("bootstrap_timeout", "waiting_timeout"),
            ),
            "sglang": ("proxy_us", "kv_lease_duration", "kv_load_failure_policy"),
        }[engine]
        return tuple(key for key in theirs if getattr(self, key) is not None)

    def timeout_ps(self, key: str) -> int:
        """The timeout under `key` in ps; 300 s unless given, as in SGLang."""
        return round((getattr(self, key) or 300.0) * PS_PER_S)

    def ps(self, key: str) -> int:
        """The time under `key`, given in us, in ps; 0 if it is not given."""
        return round((getattr(self, key) or 0.0) * PS_PER_US)
