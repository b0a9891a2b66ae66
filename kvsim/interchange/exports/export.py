"""The interface of an export format, which writes a run as another tool's files."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.interchange.served import ServedScenario
from kvsim.model.catalogue import first_id
from kvsim.plumbing.options import Options
from kvsim.plumbing.units import PS_PER_S
from kvsim.results.result import Run

Floats = NDArray[np.float64]
# Of the pool, what an engine of blocks counts as taken.
HELD = ("used", "reserved", "overprovisioned", "rounding", "transient")


class Exported(NamedTuple):
    """A run to export, with its scenario.

    scenario is resolved, as in a result's scenario.toml. others has the runs of a fleet's other
    replicas, if all replicas are exported; `run` is then the first replica's.
    """

    scenario: Mapping[str, Any]
    run: Run
    others: tuple[Run, ...] = ()

    @property
    def replicas(self) -> "list[Exported]":
        """One Exported for each replica."""
        return [Exported(self.scenario, run) for run in (self.run, *self.others)]

    @property
    def what(self) -> str:
        """The label of the run, or of the fleet's replicas, for messages."""
        count, label = len(self.replicas), self.run.label
        return label if count == 1 else f"{label.rpartition(' #')[0]}, {count} replicas,"

    @property
    def model(self) -> str:
        """The model's Hugging Face id; its name or config path if it has none."""
        model = self.scenario["model"]
        name = model.get("name")
        return str(model.get("hf_config")) if name is None else first_id(name)

    @property
    def allocator(self) -> Mapping[str, Any]:
        """The options of the run's allocator."""
        kinds = [each for each in self.scenario["allocator"] if each["kind"] == self.run.kind]
        labelled = [each for each in kinds if each.get("label") == self.run.label]
        if labelled or len(kinds) == 1:
            options: Mapping[str, Any] = (labelled or kinds)[0]
            return options
        # Told apart by what differs, which the label spells out.
        return max(
            kinds,
            key=lambda each: sum(
                f"{key}={str(value).lower()}" in self.run.label.lower()
                for key, value in each.items()
            ),
        )


class Answered(NamedTuple):
    """Arrays over the answered requests, in order of arrival; times in seconds from the start.

    tier_tokens is the part of cached_tokens that came from KV tiers (host or storage).
    """

    ids: list[str]
    sessions: list[str | None]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    cached_tokens: NDArray[np.int64]
    tier_tokens: NDArray[np.int64]
    preemptions: NDArray[np.int64]
    arrival_s: Floats
    scheduled_s: Floats
    first_token_s: Floats
    finish_s: Floats

    @property
    def ttft_s(self) -> Floats:
        """Time in s from arrival to the first token."""
        return self.first_token_s - self.arrival_s

    @property
    def e2e_s(self) -> Floats:
        """Time in s from arrival to the last token."""
        return self.finish_s - self.arrival_s

    @property
    def tpot_s(self) -> Floats:
        """Mean time in s per token after the first; 0 for a request with one token."""
        return (self.finish_s - self.first_token_s) / np.maximum(self.output_tokens - 1, 1)


class Gauges(NamedTuple):
    """Gauges of an engine as step functions: each value holds from time_s until the next time.
    usage is a fraction of the KV pool.
    """

    time_s: Floats
    running: NDArray[np.int64]
    waiting: NDArray[np.int64]
    usage: Floats

    def at(self, moments: Floats) -> "Gauges":
        """The gauges at the given times (s); before the first entry all are 0."""
        place = np.searchsorted(self.time_s, moments, side="right") - 1
        known = place >= 0
        return Gauges(
            moments,
            np.where(known, self.running[place], 0),
            np.where(known, self.waiting[place], 0),
            np.where(known, self.usage[place], 0.0),
        )


class Export(Options):
    """An export format; its fields are the format's options.

    what describes the format to people. folder: the format writes several files into a folder,
    otherwise one file. fleets: one file holds all replicas of a fleet, otherwise only one replica.
    """

    what: ClassVar[str]
    folder: ClassVar[bool] = False
    fleets: ClassVar[bool] = False

    @abstractmethod
    def files(self, exported: Exported) -> Iterator[tuple[str, Iterator[str]]]:
        """(name, lines with line ends) for each file. A format with a single file ignores the name.

        InputError for a run that the format cannot represent.
        """


class ServerExport(Export):
    """A format that describes the server only, so no run is needed."""

    @abstractmethod
    def server_files(self, server: ServedScenario) -> Iterator[tuple[str, Iterator[str]]]:
        """(name, lines with line ends) for each file that describes the server."""

    @abstractmethod
    def told(self, server: ServedScenario) -> list[str]:
        """Sentences on settings of this server that the format cannot express."""

    def files(self, exported: Exported) -> Iterator[tuple[str, Iterator[str]]]:
        server = ServedScenario(exported.scenario, exported.allocator, exported.run.label)
        return self.server_files(server)


def answered(run: Run) -> Answered:
    """The answered requests of a run, as arrays."""
    table = run.requests
    table = table[table["status"] == "finished"]

    def seconds(column: str) -> Floats:
        return table[column].to_numpy(dtype=np.float64) / PS_PER_S

    def counts(column: str) -> NDArray[np.int64]:
        return table[column].to_numpy(dtype=np.int64)

    return Answered(
        [str(name) for name in table["id"]],
        [None if name is None or name != name else str(name) for name in table["session"]],
        counts("prompt_tokens"),
        counts("output_tokens"),
        counts("cached_tokens"),
        counts("host_cached_tokens") + counts("storage_cached_tokens")
        if "host_cached_tokens" in table
        else np.zeros(len(table), np.int64),
        counts("preemptions"),
        seconds("arrival_ps"),
        seconds("scheduled_ps"),
        seconds("first_token_ps"),
        seconds("finish_ps"),
    )


def gauges(run: Run) -> Gauges:
    """The engine's gauges at each time they changed; 0 after the end of the run."""
    table = run.memory
    capacity = run.summary.memory.capacity_bytes
    held = sum(table[f"{name}_bytes"] for name in HELD)
    pool = np.maximum(capacity - table["metadata_bytes"].to_numpy(), 1)
    time_s = table["start_ps"].to_numpy(dtype=np.float64) / PS_PER_S
    end_s = float(table["end_ps"].iloc[-1]) / PS_PER_S if len(table) else 0.0
    return Gauges(
        np.append(time_s, end_s),
        np.append(table["num_running"].to_numpy(), 0),
        np.append(table["num_waiting"].to_numpy(), 0),
        np.append(np.asarray(held) / pool if len(table) else np.zeros(0), 0.0),
    )
