"""meta.json of a run that kvsim observed on its own torch backend."""

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
    """A request that could never run."""

    id: str
    reason: str


class Circumstances(Options):
    """How a run went, for the reader.

    clock: what its times were read from. device: torch's name of it. store, attention: what kept
    KV, and what read it. started_at, finished_at: in UTC. device_facts, load_after, software: of
    the machine. bytes_beside_the_store: on the device, when the run began. preemptions,
    recomputed_tokens, swapped_bytes: of the whole run, as its scheduler counts. graphs: steps that
    were captured, replayed, and run launch by launch. pace_s: of the step that shows the machine's
    pace, the median over a run by thread CPU time (see `kvsim calibrate pace`). refused: the
    requests that were not served.
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
    """A run of kvsim's own scheduler and allocator on its torch backend (`kvsim observe`).

    kvsim: its version. label: of the allocator. copy_bytes_per_s: rate of copies on the simulated
    device, bytes read and written. host_bytes_per_s: of its link to host memory (that of PCIe 4.0
    x16 if the file does not say). seed, workload: where the requests came from, for the reader.
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
