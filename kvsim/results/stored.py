"""What a summary.json must hold before anything is made of it: the numbers every reader counts on.

Further keys are for the reader; a missing or wrong one is an InputError that names it.
"""

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, create_model, model_validator

from kvsim.memory.ledger import CLASSES
from kvsim.plumbing.options import Options
from kvsim.results.latency import QUANTILES

Count = Annotated[int, Field(ge=0)]
Measured = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=-1e-9, le=1 + 1e-9)]


class _Kept(Options):
    model_config = ConfigDict(extra="allow", strict=True)


class StoredCounts(_Kept):
    """Requests of a run."""

    submitted: Count
    finished: Count
    rejected: Count


_spread: dict[str, Any] = dict.fromkeys(("mean", *QUANTILES), (Measured | None, ...))
StoredSpread = create_model("StoredSpread", __base__=_Kept, **_spread)
_shares: dict[str, Any] = dict.fromkeys(CLASSES, (Share, ...))
StoredShares = create_model("StoredShares", __base__=_Kept, **_shares)


class StoredMemory(_Kept):
    """The ledger's means and peaks."""

    capacity_bytes: Annotated[int, Field(ge=1)]
    capacity_tokens: Count
    time_mean: StoredShares
    step_mean: StoredShares
    parts: dict[str, Share] = Field(default_factory=dict)
    peak_used: Measured
    peak_allocated: Measured
    sharing_savings: Share | None = None


class StoredCache(_Kept):
    """Tokens looked up in the prefix cache, and found."""

    query_tokens: Count
    hit_tokens: Count


class StoredSpeculation(_Kept):
    """What drafting did."""

    verifications: Count
    draft_tokens: Count
    accepted_tokens: Count
    acceptance_rate: Share | None
    mean_acceptance_length: Measured | None
    draft_slots: Share


NO_DRAFTS = StoredSpeculation(
    verifications=0,
    draft_tokens=0,
    accepted_tokens=0,
    acceptance_rate=None,
    mean_acceptance_length=None,
    draft_slots=0.0,
)


class StoredNote(_Kept):
    """What must be known to read the numbers."""

    about: str
    text: str


class StoredShare(_Kept):
    """The ledger's mean over a window."""

    time_mean: StoredShares


class StoredWindow(_Kept):
    """The window that was measured beside the whole run; of "none" only the reason counts."""

    found: str
    reason: str = ""
    start_s: Measured | None = None
    end_s: Measured | None = None
    requests: Count | None = None
    output_tokens_per_s: Measured | None = None
    running_mean: Measured | None = None
    waiting_mean: Measured | None = None
    ttft_s: StoredSpread | None = None
    memory: StoredShare | None = None

    @model_validator(mode="after")
    def _measured_if_found(self) -> Self:
        own = set(StoredWindow.model_fields) - {"reason"}
        missing = [name for name in sorted(own) if getattr(self, name) is None]
        if self.found != "none" and missing:
            raise ValueError(f"a window without {', '.join(missing)}")
        return self


class StoredProvenance(_Kept):
    """Where a scenario's inputs came from, in words."""

    notes: list[str] = Field(default_factory=list)


class StoredScenario(_Kept):
    """The resolved scenario; its tables are checked when it is run."""

    provenance: StoredProvenance = StoredProvenance()


class StoredRun(_Kept):
    """One entry of `runs`."""

    allocator: str
    label: str
    requests: StoredCounts
    preemptions: Count
    makespan_s: Measured
    requests_per_s: Measured | None
    output_tokens_per_s: Measured | None
    running_mean: Measured | None
    ttft_s: StoredSpread
    tpot_s: StoredSpread
    itl_s: StoredSpread
    e2e_s: StoredSpread
    queue_s: StoredSpread | None = None
    memory: StoredMemory
    prefix_cache: StoredCache
    speculation: StoredSpeculation = NO_DRAFTS
    copied_bytes: Count
    recomputed_tokens: Count
    swapped_bytes: Count
    steps: Count
    wall_s: Measured
    waiting_mean: Measured | None = None
    window: StoredWindow = StoredWindow(found="none")
    notes: list[StoredNote] = Field(default_factory=list)

    @model_validator(mode="after")
    def _time_has_passed(self) -> Self:
        if self.requests.finished and not (self.makespan_s and self.steps):
            raise ValueError("requests have finished, and no time has passed")
        return self


class StoredSummary(_Kept):
    """A summary.json."""

    kvsim: str
    scenario: StoredScenario
    runs: Annotated[list[StoredRun], Field(min_length=1)]
