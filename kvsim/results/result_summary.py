"""A summary.json: the numbers of all runs, with the scenario."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, Field, Strict, ValidationError

from kvsim.plumbing.options import input_error
from kvsim.results.late_part import late
from kvsim.results.summary import RunSummary
from kvsim.results.summary_part import SummaryPart

if TYPE_CHECKING:
    from kvsim.results.fleet import FleetSummary
    from kvsim.results.measured import MeasuredSummary
else:  # few results are of fleets, or of a server that was measured
    FleetSummary = late("kvsim.results.fleet:FleetSummary")
    MeasuredSummary = late("kvsim.results.measured:MeasuredSummary")


@dataclass
class _Provenance:
    notes: list[str] = field(default_factory=list)


@dataclass
class _ScenarioTables:
    provenance: _Provenance = field(default_factory=_Provenance)


def _check_provenance(scenario: dict[str, Any]) -> dict[str, Any]:
    """`scenario`, after a check that the values which a report reads have the right types."""
    from pydantic import TypeAdapter

    TypeAdapter(_ScenarioTables).validate_python(scenario)
    return scenario


def _time_has_passed(run: RunSummary) -> RunSummary:
    if run.requests.finished and not (run.makespan_s and run.steps):
        raise ValueError("requests have finished, and no time has passed")
    return run


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ResultSummary(SummaryPart):
    """A summary.json. kvsim: the version that wrote it. scenario: the tables of the resolved
    scenario, every default written out, with its provenance. fleets: summaries of fleets, for a
    scenario with replicas. measured: numbers of the real server. difference: by label, simulated /
    measured - 1 of each number that was measured, under the same keys; of `kv_usage` simulated -
    measured. interval: the range of measured / simulated that 8 of 10 servers of this kind were in,
    by latency; None where none were compared.
    """

    kvsim: str
    scenario: Annotated[dict[str, Any], Strict(), AfterValidator(_check_provenance)]
    runs: Annotated[
        tuple[Annotated[RunSummary, AfterValidator(_time_has_passed)], ...], Field(min_length=1)
    ]
    fleets: tuple[FleetSummary, ...] | None = None
    measured: MeasuredSummary | None = None
    difference: dict[str, Any] | None = None
    interval: dict[str, Any] | None = None

    @classmethod
    def parse(cls, contents: Mapping[str, Any], where: str) -> Self:
        """The summary in the contents of a summary.json found at `where`; unknown keys are ignored.
        Raises InputError for a missing or invalid key.
        """
        from pydantic import TypeAdapter

        try:
            return TypeAdapter(cls).validate_python(contents)
        except ValidationError as error:
            raise input_error(error, where) from None
