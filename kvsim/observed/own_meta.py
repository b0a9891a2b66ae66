"""meta.json of a run that `kvsim observe` recorded on its own torch backend."""

from typing import Any

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from kvsim.engine.replica import ReplicaSpec
from kvsim.layout import KVGroup, KVLayout
from kvsim.observed.meta import RunMeta
from kvsim.plumbing.options import Options
from kvsim.scenario import AnyAllocator, AnyScheduler
from kvsim.step_time.calibrated.file import Facts
from kvsim.step_time.calibrated.identity import ModelIdentity

HOST_BYTES_PER_S = 25 * 10**9


class RefusedRequest(Options):
    """A request that the engine refused, and the reason: for example, it exceeds the KV pool."""

    id: str
    reason: str


class Circumstances(Options):
    """The conditions and outcome of an observed run, written for people; the simulation does not
    use these fields.

    clock is the clock from which times were read. device is torch's name of the device. store and
    attention describe the KV store and the attention kernel that reads it. started_at and
    finished_at are in UTC. device_facts, load_after and software describe the machine.
    bytes_beside_the_store counts bytes in use on the device when the run began, without the KV
    store.

    preemptions, recomputed_tokens and swapped_bytes are the scheduler's totals over the run. graphs
    counts steps that were captured as a CUDA graph, replayed from one, or launched kernel by
    kernel. pace_s is the median thread CPU time of the reference step that shows the machine's
    speed (see `kvsim calibrate pace`). refused lists the requests that were not served.
    """

    clock: str
    device: str = ""
    store: str = ""
    attention: str = ""
    started_at: str = ""
    finished_at: str = ""
    device_facts: Facts = Field(default_factory=dict)
    load_after: tuple[float, ...] | None = None
    software: Facts = Field(default_factory=dict)
    bytes_beside_the_store: dict[str, NonNegativeInt] = Field(default_factory=dict)
    preemptions: NonNegativeInt = 0
    recomputed_tokens: NonNegativeInt = 0
    swapped_bytes: NonNegativeInt = 0
    graphs: dict[str, NonNegativeInt] = Field(default_factory=dict)
    pace_s: PositiveFloat | None = None
    refused: tuple[RefusedRequest, ...] = ()


class ObservedMeta(Circumstances, RunMeta):
    """Settings of a run of kvsim's own scheduler and allocator on its torch backend (`kvsim
    observe`).

    kvsim is the version. label is the allocator's. copy_bytes_per_s is the rate of copies within
    the device, which counts bytes read and bytes written. host_bytes_per_s is the rate of the link
    to host memory (PCIe 4.0 x16 unless the file says otherwise). seed and workload say where the
    requests came from, for people.
    """

    kvsim: str
    label: str
    identity: ModelIdentity
    allocator: AnyAllocator
    scheduler: AnyScheduler
    capacity_bytes: PositiveInt
    kv_bytes_per_token: PositiveInt
    copy_bytes_per_s: PositiveInt
    host_bytes_per_s: PositiveInt = HOST_BYTES_PER_S
    seed: NonNegativeInt = 0
    workload: dict[str, Any] | None = None

    @property
    def engine(self) -> str:
        return f"kvsim {self.kvsim} on torch, {self.label}"

    def facts(self) -> list[tuple[str, str]]:
        tokens = self.capacity_bytes // self.kv_bytes_per_token
        return [("engine", self.engine), ("pool", f"{tokens:,} tokens"), ("clock", self.clock)]

    def engine_facts(self) -> dict[str, Any]:
        return {"kvsim_version": self.kvsim, "allocator": self.label, "clock": self.clock}

    def model_identity(self) -> ModelIdentity:
        return self.identity

    def replica_spec(self) -> ReplicaSpec:
        return ReplicaSpec(
            self.allocator,
            self.scheduler,
            capacity_bytes=self.capacity_bytes,
            layout=KVLayout((KVGroup("full", 1, self.kv_bytes_per_token),)),
            max_model_len=self.max_model_len,
            copy_bytes_per_s=self.copy_bytes_per_s,
            host_bytes_per_s=self.host_bytes_per_s,
            max_steps=1,
        )
