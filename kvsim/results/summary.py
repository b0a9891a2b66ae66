"""The summary of a result: the one typed form of summary.json, for all that writes or reads it.

Every number has its unit in its name or in its docstring; `_s` are seconds, `_tokens` tokens,
`_bytes` bytes. Shares are fractions of the pool's capacity from 0 to 1. The attributes are the keys
of summary.json, in its order; a key that may be missing there has None as its default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import PlainValidator

from kvsim.results.late_part import late
from kvsim.results.summary_part import NULL, Count, Measured, Positive, Share, SummaryPart

if TYPE_CHECKING:
    from kvsim.results.summary_beyond import (
        AdaptersSummary,
        EncoderSummary,
        TiersSummary,
        TransferSummary,
    )
else:  # few runs have these parts, and a short run is mostly imports
    AdaptersSummary = late("kvsim.results.summary_beyond:AdaptersSummary")
    EncoderSummary = late("kvsim.results.summary_beyond:EncoderSummary")
    TiersSummary = late("kvsim.results.summary_beyond:TiersSummary")
    TransferSummary = late("kvsim.results.summary_beyond:TransferSummary")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RequestCounts(SummaryPart):
    """Requests of a run: those submitted, those that finished, and those refused on arrival because
    they could never fit.
    """

    submitted: Count
    finished: Count
    rejected: Count


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LatencySummary(SummaryPart):
    """Mean and quantiles of one latency over finished requests, in seconds; None if no request has
    this latency. Definitions: `kvsim.results.latency`.
    """

    mean: Measured | None
    p50: Measured | None
    p90: Measured | None
    p95: Measured | None
    p99: Measured | None

    @classmethod
    def of(cls, found: Mapping[str, float]) -> Self:
        """The mean and the named quantiles; None for those not computed."""
        mean, p50, p90, p95, p99 = map(found.get, ("mean", "p50", "p90", "p95", "p99"))
        return cls(mean=mean, p50=p50, p90=p90, p95=p95, p99=p99)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ClassShares(SummaryPart):
    """The share of the pool in each class of the ledger, which sum to 1; the classes are defined in
    `kvsim.memory.ledger`.
    """

    used: Share
    reserved: Share
    overprovisioned: Share
    rounding: Share
    cached: Share
    transient: Share
    metadata: Share
    external: Share
    short: Share
    idle: Share

    def of(self, name: str) -> float:
        """The share of the class of this name."""
        share: float = self[name]
        return share


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MemorySummary(SummaryPart):
    """The ledger of a run.

    capacity_bytes, capacity_tokens: the size of the pool; 0 tokens if all layers are recurrent.
    time_mean: mean shares over time, step_mean: over steps, each with weight one. parts: mean
    shares over time of those parts of classes that occurred, by name (`kvsim.memory.parts`,
    `block_padding`, `cached_prompts`). peak_used: the largest share in class `used`;
    peak_allocated: the largest share that live requests held; of several replicas, those of the
    replica with the highest. sharing_savings: 1 - physical / logical bytes that sequences held;
    None where the allocator does not follow it.
    """

    capacity_bytes: Positive
    capacity_tokens: Count
    time_mean: ClassShares
    parts: dict[str, Share] | None = None
    step_mean: ClassShares
    peak_used: Measured
    peak_allocated: Measured
    sharing_savings: Share | None = field(default=None, metadata=NULL)

    def part(self, name: str) -> float:
        """The mean share of one part; 0.0 if it did not occur."""
        return (self.parts or {}).get(name, 0.0)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PrefixCacheSummary(SummaryPart):
    """Prompt tokens looked up in the prefix cache (query_tokens), and tokens hit on the device or
    on the host (hit_tokens).

    host_hit_tokens: the part of hit_tokens that was hit on the host.
    """

    query_tokens: Count
    hit_tokens: Count
    host_hit_tokens: Count | None = None

    @property
    def hit_rate(self) -> float | None:
        """hit_tokens / query_tokens; None if nothing was looked up."""
        return self.hit_tokens / self.query_tokens if self.query_tokens else None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SpeculationSummary(SummaryPart):
    """Counts of speculative decoding.

    verifications: sequences * steps in which drafts were verified. draft_tokens: drafts verified,
    accepted_tokens: drafts accepted. acceptance_rate: accepted / drafted. mean_acceptance_length:
    output tokens of one verification, one of which came without a draft. Both are None where
    nothing was verified. draft_slots: the mean share of the pool that was held for drafts and not
    used (of the classes `reserved` and `overprovisioned`).
    """

    verifications: Count
    draft_tokens: Count
    accepted_tokens: Count
    acceptance_rate: Share | None
    mean_acceptance_length: Measured | None
    draft_slots: Share


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SummaryNote(SummaryPart):
    """A remark needed to read a run's numbers: about, one of the words of `kvsim.results.notes`,
    and a sentence.
    """

    about: str
    text: str


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WindowMemory(SummaryPart):
    """The ledger's mean shares over a window of time."""

    time_mean: ClassShares


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WindowSummary(SummaryPart):
    """The numbers of a part of a run, in addition to those of the whole
    (`kvsim.results.measurement`).

    found: "given" by its edges, or "steady". start_s, end_s: its edges, from the first arrival.
    requests: those that arrived in it; the latencies are theirs. requests_per_s,
    output_tokens_per_s: of requests that finished in it. running_mean: sequences running,
    waiting_mean: requests that no step had taken in yet, means over time.
    """

    found: str
    start_s: Measured
    end_s: Measured
    requests: Count
    requests_per_s: Measured
    output_tokens_per_s: Measured
    running_mean: Measured
    waiting_mean: Measured
    ttft_s: LatencySummary
    tpot_s: LatencySummary
    e2e_s: LatencySummary
    memory: WindowMemory


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NoWindow(SummaryPart):
    """The reason why no part of a run was measured. found: "none"."""

    found: str = "none"
    reason: str = ""


def _read_window(table: Any) -> WindowSummary | NoWindow:
    """Parse the measured window of a stored summary; `found` says which keys it has."""
    from pydantic import TypeAdapter

    none = isinstance(table, dict) and table.get("found") == "none"
    kind: type[WindowSummary | NoWindow] = NoWindow if none else WindowSummary
    return TypeAdapter(kind).validate_python(table)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RunSummary(SummaryPart):
    """The numbers of one run: an entry of `runs`.

    allocator: its kind; label: the run's name, unique in a result. preemptions: how often a running
    sequence lost its memory. makespan_s: from the first arrival to the end of the last step;
    requests_per_s and output_tokens_per_s: of finished requests, over the makespan (None: not
    known). running_mean: sequences running, waiting_mean: sequences waiting, means over time.
    copied_bytes: copied on the device to grow buffers or to split shared blocks. recomputed_tokens:
    computed again after preemptions. swapped_bytes: moved between device and host. steps: of the
    engine; outside_domain_steps: those beyond what the step time was measured on. wall_s: how long
    the simulation took here, the one number that differs from machine to machine. engine_faults:
    passes in which SGLang 0.5.23 would have taken a cut prompt for whole. transfers: of a
    disaggregated deployment. Its run is that of the decode replicas, with all latencies from the
    arrival of a request at the deployment. pool_of: "prefill" or "decode", the kind of the run's
    replicas; None where each replica does both.
    """

    allocator: str
    label: str
    requests: RequestCounts
    preemptions: Count
    makespan_s: Measured
    requests_per_s: Measured | None
    output_tokens_per_s: Measured | None
    running_mean: Measured | None
    waiting_mean: Measured | None = None
    ttft_s: LatencySummary
    tpot_s: LatencySummary
    itl_s: LatencySummary
    e2e_s: LatencySummary
    queue_s: LatencySummary | None = None
    memory: MemorySummary
    prefix_cache: PrefixCacheSummary
    copied_bytes: Count
    recomputed_tokens: Count
    swapped_bytes: Count
    steps: Count
    outside_domain_steps: Count | None = None
    wall_s: Measured
    engine_faults: Count | None = None
    speculation: SpeculationSummary | None = None
    transfers: TransferSummary | None = None
    offloading: TiersSummary | None = None
    encoder: EncoderSummary | None = None
    adapters: AdaptersSummary | None = None
    pool_of: str | None = None
    window: Annotated[WindowSummary | NoWindow | None, PlainValidator(_read_window)] = None
    notes: tuple[SummaryNote, ...] | None = None

    def simulated(self) -> dict[str, Any]:
        """The numbers as JSON without `wall_s`: the same on every machine."""
        return {key: value for key, value in self.as_json().items() if key != "wall_s"}

    def noted(self, about: str) -> bool:
        """Whether a note has this topic."""
        return any(note.about == about for note in self.notes or ())
