"""A result: one run for each allocator, in numbers and tables, simulated or read from disk."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

from kvsim.plumbing.extras import need
from kvsim.results.flat import flat
from kvsim.results.link_copies import NamedLogs, link_table
from kvsim.results.recorder import Recorder
from kvsim.results.run_tables import COLUMNS, Columns
from kvsim.results.summary import RunSummary
from kvsim.version import VERSION

if TYPE_CHECKING:
    import pandas as pd

    from kvsim.results.addresses import Addresses
    from kvsim.results.fleet import FleetSummary
    from kvsim.results.measured import MeasuredSummary
    from kvsim.results.result_summary import ResultSummary

Table = Callable[[], "pd.DataFrame"]


def _frame(columns: Callable[[Recorder], Columns], recorder: Recorder) -> "pd.DataFrame":
    need("pandas", where="tables of a run")
    import pandas as pd

    return pd.DataFrame(columns(recorder))


@dataclass(frozen=True, eq=False)
class Run:
    """The run of one allocator.

    kind: of the allocator. summary: the numbers. tables: by name, each computed on first use.
    recorder: the engine's records; None if the run was read from disk. beside: runs of the other
    side of the same deployment.
    """

    label: str
    kind: str
    summary: RunSummary
    tables: Mapping[str, Table] = field(repr=False)
    recorder: Recorder | None = field(default=None, repr=False)
    beside: tuple["Run", ...] = ()

    @classmethod
    def recorded(cls, summary: RunSummary, recorder: Recorder) -> Self:
        """A run with its summary and the recorder that recorded it."""
        tables = {name: partial(_frame, of, recorder) for name, of in COLUMNS.items()}
        return cls(summary.label, summary.allocator, summary, tables, recorder)

    def with_addresses(self, addresses: "Addresses") -> Self:
        """A copy with the tables of addresses, events, holes and nodes."""
        tables = {
            "addresses": addresses.table,
            "events": addresses.events,
            "holes": addresses.holes,
        }
        if addresses.has_nodes:
            tables["nodes"] = addresses.nodes
        return replace(self, tables={**self.tables, **tables})

    def with_links(self, logs: NamedLogs) -> Self:
        """A copy with the table of copies over links, if there are links."""
        tables = {"links": partial(link_table, logs)} if logs else {}
        return replace(self, tables={**self.tables, **tables})

    def columns(self, name: str) -> "Columns | pd.DataFrame":
        """The rows of one of COLUMNS; does not need pandas if the run was just simulated."""
        return self.tables[name]() if self.recorder is None else COLUMNS[name](self.recorder)

    def table(self, name: str) -> "pd.DataFrame | None":
        """The table with this name; None if the run has no such table."""
        made: dict[str, pd.DataFrame] = self.__dict__.setdefault("_made", {})
        if name not in made and name in self.tables:
            made[name] = self.tables[name]()
        return made.get(name)

    @cached_property
    def requests(self) -> "pd.DataFrame":
        """One row for each sequence; see `kvsim.results.run_tables.request_columns`."""
        return self.tables["requests"]()

    @cached_property
    def memory(self) -> "pd.DataFrame":
        """The ledger over time; see `kvsim.results.run_tables.memory_columns`."""
        return self.tables["memory"]()


@dataclass(frozen=True, eq=False)
class Result:
    """All runs of a scenario.

    scenario: the tables of the resolved scenario, every default written out, with its provenance.
    version: kvsim's version that simulated it. fleets: for a scenario with replicas, the fleet's
    summary for each allocator; `runs` then has one run for each replica. measured: measurements of
    a real server in this scenario, if known. html: renderer for a notebook.
    """

    scenario: dict[str, Any]
    runs: tuple[Run, ...]
    version: str = VERSION
    fleets: "tuple[FleetSummary, ...]" = ()
    measured: "MeasuredSummary | None" = None
    html: "Callable[[Result], str] | None" = field(default=None, repr=False)

    def summary(self) -> dict[str, Any]:
        """The contents of summary.json."""
        return self.typed_summary().as_json()

    def typed_summary(self) -> "ResultSummary":
        """The numbers of all runs, with the scenario."""
        from kvsim.results.result_summary import ResultSummary  # a terminal asks for none

        runs = tuple(run.summary for run in self.runs)
        return ResultSummary(
            kvsim=self.version,
            scenario=self.scenario,
            runs=runs,
            fleets=self.fleets or None,
            measured=self.measured,
            difference=self._differences(),
            interval=self._interval(),
        )

    def _differences(self) -> dict[str, Any] | None:
        """Simulated against measured numbers, by the label of a run or of a fleet."""
        if self.measured is None:
            return None
        from kvsim.results.measured import differences

        runs: tuple[RunSummary, ...] = self.fleets or tuple(run.summary for run in self.runs)
        return {run.label: differences(self.measured, run) for run in runs}

    @property
    def served(self) -> str:
        """The kind of measured servers that gives the error of the step times (`HostCost.served`);
        empty if no such servers were measured, and with drafts.
        """
        if self.scenario.get("speculative_config"):
            return ""
        return str(self.scenario.get("provenance", {}).get("served_points") or "")

    def _interval(self) -> dict[str, Any] | None:
        """Range of measured / simulated latencies; None if no such servers were measured
        (`served`).
        """
        if not self.served:
            return None
        from kvsim.step_time.kernels.expected import interval_80

        return interval_80(self.served)

    def table(self) -> "pd.DataFrame":
        """One row for each run: its label, then every number of its summary by a dotted key.

        Units are those of summary.json (seconds, bytes, tokens, shares of the pool).
        """
        need("pandas", where="Result.table")
        import pandas as pd

        return pd.DataFrame([flat(run.summary.simulated()) for run in self.runs]).set_index("label")

    def _repr_html_(self) -> str | None:
        """HTML for a notebook; None without a registered renderer, and the notebook then prints the
        object.
        """
        return None if self.html is None else self.html(self)

    def __getitem__(self, label: str) -> Run:
        """The run with this label."""
        return next(run for run in self.runs if run.label == label)
