"""`kvsim import`: read sources, and write a scenario with its request stream and observed run."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kvsim.interchange.merge import USER, Contradiction, Merged, merge
from kvsim.interchange.results_among import reads_of, results_among, scenario_paths, servers_among
from kvsim.interchange.scrapes import of_one_server, with_acceptance
from kvsim.interchange.to_scenario.learned import (
    MeasuredLoad,
    ServerSteps,
    learn,
    learn_together,
)
from kvsim.interchange.to_scenario.observed import recording_of
from kvsim.interchange.to_scenario.replicas import fleet_of
from kvsim.interchange.to_scenario.server import server_of
from kvsim.interchange.to_scenario.sides import (
    assumed_link,
    joined,
    role_notes,
    sides_among,
    without_transfer,
)
from kvsim.interchange.to_scenario.stream import ScenarioWorkload, stream_of
from kvsim.observed.measured import FILE as MEASURED
from kvsim.observed.measured import run_folder
from kvsim.observed.writing import Recording, write_recording
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.toml import to_toml
from kvsim.readers.description import Description, Requests, ServerSettings
from kvsim.readers.detect import Read, read_sources
from kvsim.readers.parsing.client import period_of, repeated
from kvsim.scenario import Scenario

HERE = "given here"
CONFIG = ".config.json"
_OF_SERVER = ("model", "device", "memory", "allocator", "scheduler")  # tables of the server


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import, before anything is written.

    scenario has the tables as in a TOML file. stream has the workload and the lines of its trace
    file. recording is the observed run; None if nothing was measured. config is the model's
    config.json, if one was among the sources.
    """

    reads: tuple[Read, ...]
    merged: Merged
    scenario: dict[str, Any]
    stream: ScenarioWorkload
    recording: Recording | None
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    config: dict[str, Any] | None = None

    @property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """Settings with different values in two sources."""
        return self.merged.contradictions

    def as_dict(self) -> dict[str, Any]:
        """The import's report, for `--json`."""
        requests = self.merged.requests
        return {
            "sources": [
                {
                    "name": read.name,
                    "format": read.format,
                    "settings": read.description.settings.reported(),
                    "requests": len(getattr(read.description.requests, "rows", ())),
                    "samples": len(getattr(read.description.gauges, "samples", ())),
                    "measured": read.description.measured,
                    "notes": list(read.description.notes),
                }
                for read in self.reads
            ],
            "settings_from": self.merged.origins,
            "contradictions": [str(each) for each in self.contradictions],
            "assumed": list(self.assumed),
            "notes": list(self.notes),
            "requests": len(requests.rows) if requests else 0,
            "observed_requests": len(self.recording.served) if self.recording else 0,
            "observed_steps": len(self.recording.steps) if self.recording else 0,
            "measured": self.recording.figures.as_json()
            if self.recording and self.recording.figures
            else None,
            "scenario": self.scenario,
        }


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The user's options, which complement the sources.

    named are settings that take precedence over all sources. seed is the scenario's. users is the
    number of users of a closed loop that sends the requests; 0: use recorded times; None: as the
    sources say. prompts_repeat is the number of requests after which the same prompts are sent
    again; None: never. fit: fit step times to the measurements.
    """

    named: Mapping[str, Any]
    seed: int = 0
    users: int | None = None
    prompts_repeat: int | None = None
    fit: bool = True


def import_sources(
    sources: Sequence[str],
    named: Mapping[str, Any],
    out: Path,
    seed: int = 0,
    *,
    users: int | None = None,
    prompts_repeat: int | None = None,
    variables: Mapping[str, str] | None = None,
    fit: bool = True,
) -> Imported:
    """Read sources of one run, merge their content and make a scenario.

    out is the path of the scenario file; a trace of the requests is written next to it. variables
    are values of shell variables in scripts, by name. See `ImportOptions` for the others.

    InputError for an unusable source, for several results, or if no source gives the model or the
    device.
    """
    options = ImportOptions(named, seed, users, prompts_repeat, fit)
    made = import_results(sources, options, out, variables)
    if len(made) > 1:
        raise InputError(
            "several results or servers, and a scenario has one of each",
            where=", ".join(sources),
            value=len(made),
            limit=1,
            remedy="name one of them",
        )
    return made[0][1]


def import_results(
    sources: Sequence[str],
    options: ImportOptions,
    out: Path,
    variables: Mapping[str, str] | None = None,
) -> list[tuple[Path, Imported]]:
    """Import sources that may hold several benchmark results: (path, import) of one scenario per
    result.

    With several results the scenarios are written into a folder, `out` without its suffix. Step
    times are fitted once to all results of one server.
    """
    notes: list[str] = []
    reads = of_one_server(read_sources(sources, notes, variables), notes)
    pair = sides_among(reads)
    made = pair and _of_pair(reads, pair, options, out, notes)
    if made is not None:
        return [(out, made)]
    notes += role_notes(reads)
    results = results_among(reads) or servers_among(reads)
    if not results:
        return [(out, _imported(reads, options, out, list(notes)))]
    paths = scenario_paths(results, out)

    def scenarios(options: ImportOptions) -> list[tuple[Path, Imported]]:
        return [
            (path, _imported(reads_of(result, results, reads), options, path, list(notes)))
            for path, result in zip(paths, results, strict=True)
        ]

    if options.fit and results_among(reads):
        found = _fitted_together(scenarios(replace(options, fit=False)))
        if found is not None:
            return found
    return scenarios(options)


def _fitted_together(found: list[tuple[Path, Imported]]) -> list[tuple[Path, Imported]] | None:
    """Scenarios of several loads of one server, with one fit to all loads. None if there are
    several servers. None too if a log has steps or the model is read from a file: each load has to
    be fitted alone then.
    """
    servers = [[each.scenario.get(name) for name in _OF_SERVER] for _, each in found]
    if any(server != servers[0] for server in servers):
        return None
    loads = []
    for path, each in found:
        model = dict(each.scenario["model"])
        if "hf_config" in model:
            model["hf_config"] = str((path.parent / model["hf_config"]).resolve())
        if each.recording is None or each.recording.steps or each.config is not None:
            return None
        table = {**each.scenario, "model": model}
        loads.append(MeasuredLoad(table, each.stream.lines, each.recording.figures))
    note = learn_together(loads)
    if note is None:
        return found
    fitted = []
    for (path, each), load in zip(found, loads, strict=True):
        ends = {key: load.table[key] for key in ("step_time", "front_end") if key in load.table}
        scenario = {**each.scenario, **ends}
        fitted.append((path, replace(each, scenario=scenario, notes=(*each.notes, note))))
    return fitted


def _of_pair(
    reads: list[Read], pair: tuple[Read, Read], options: ImportOptions, out: Path, notes: list[str]
) -> Imported | None:
    """Import a prefill and a decode server as one deployment; None, with a note, if such a
    deployment cannot be simulated.
    """
    prefill, decode = (
        _imported(
            [without_transfer(side), *(each for each in reads if each not in pair)],
            options,
            out,
            list(notes),
        )
        for side in pair
    )
    table = joined(prefill.scenario, decode.scenario)
    try:
        refused = _refused(Scenario.from_table(table))
    except InputError as fault:
        refused = fault
    if refused is not None:
        notes.append(f"prefill and decode servers are a scenario each: {refused}")
        return None
    said = [
        f"{pair[0].name} computes prompts and {pair[1].name} outputs: one scenario with "
        "[disaggregation]"
    ]
    return replace(
        decode,
        reads=tuple(reads),
        scenario=table,
        assumed=tuple(dict.fromkeys((*prefill.assumed, *decode.assumed, assumed_link()))),
        notes=tuple(
            each
            for each in dict.fromkeys((*said, *prefill.notes, *decode.notes))
            if "fleet.router" not in each  # there is no table [fleet]
        ),
    )


def _imported(reads: list[Read], options: ImportOptions, out: Path, notes: list[str]) -> Imported:
    user = ServerSettings.parse(
        {key: value for key, value in options.named.items() if value is not None}, ""
    )
    words = [Read(HERE, HERE, USER, Description(user))] if user.reported() else []
    merged = merge([*words, *reads])
    merged = replace(merged, settings=with_acceptance(merged.settings, reads))
    notes.extend(merged.notes)
    configs = [each.description.model_config for each in reads]
    config = next((each for each in configs if each is not None), None)
    if sum(each is not None for each in configs) > 1:
        notes.append("several config.json of models: the first one is taken")
    with _model_folder(config) as folder:
        return _of_server(reads, merged, config, folder, options, out, notes)


def _of_server(
    reads: list[Read],
    merged: Merged,
    config: dict[str, Any] | None,
    folder: str | None,
    options: ImportOptions,
    out: Path,
    notes: list[str],
) -> Imported:
    """The import of one server. folder has the model's config.json if a source is one,
    else None.
    """
    settings = merged.settings
    if folder is not None:
        settings = settings.model_copy(update={"model": folder})
    server = server_of(settings)
    notes.extend(server.notes)
    if folder is not None:
        server.meta_table["model"] = str(out.with_suffix(CONFIG))
    requests = _known_prompts(merged.requests, options.prompts_repeat, notes)
    file_name, spread = f"{out.stem}.requests.jsonl", _spread_of(reads)
    stream = stream_of(requests, merged.load, file_name, notes, options.users, spread)
    names = ", ".join(dict.fromkeys(read.name for read in reads))
    timed = replace(merged, requests=requests)
    recording = recording_of(server, reads, timed, f"imported from {names}", notes)
    table = server.scenario(stream.workload, options.seed)
    fleet = fleet_of(merged.settings, reads, lambda each: server_of(each).memory, table, notes)
    if fleet is not None:
        table["fleet"] = fleet
    if options.fit and recording is not None and server.knows_model:
        logged = ServerSteps(recording.steps, merged.settings)
        learn(table, stream.lines, recording.figures, logged, notes)
    scenario = Scenario.from_table(table)  # what is written can be read
    if server.knows_model and (refused := _refused(scenario)) is not None:
        notes.append(f"kvsim run refuses the scenario as it stands: {refused}")
    if folder is not None:
        table["model"] = table["model"] | {"hf_config": out.with_suffix(CONFIG).name}
    elif "hf_config" in table["model"]:  # a path from here, and a scenario's is from its folder
        path = os.path.relpath(table["model"]["hf_config"], out.parent)
        table["model"] = table["model"] | {"hf_config": path}
    return Imported(
        tuple(reads),
        merged,
        table,
        stream,
        recording,
        server.assumed,
        tuple(dict.fromkeys(notes)),
        config,
    )


@contextmanager
def _model_folder(config: dict[str, Any] | None) -> Iterator[str | None]:
    """A context with a temporary folder that holds config.json, as `--model FOLDER` expects; None
    without a config.
    """
    if config is None:
        yield None
        return
    with TemporaryDirectory(prefix="kvsim-import-") as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config), "utf-8")
        yield folder


# Of lengths drawn evenly from 1 - w to 1 + w times the mean, a percentile lies so many w above it.
_ABOVE = {"p90": 0.8, "p99": 0.98}


def _spread_of(reads: Sequence[Read]) -> float | None:
    """Relative spread of output lengths around their mean, estimated from the latencies of
    requests.

    End-to-end times are nearly proportional to output lengths. Of p90 and p99 the one that gives
    the smaller spread is used, since the slowest requests also waited. None without these
    statistics.
    """
    for read in reads:
        measured = read.description.measured
        median = measured.get("e2e_p50_s")
        found = [
            (measured[f"e2e_{name}_s"] / median - 1) / above
            for name, above in _ABOVE.items()
            if median and f"e2e_{name}_s" in measured
        ]
        if found:
            return max(min(found), 0.0)
    return None


def _refused(scenario: Scenario) -> InputError | None:
    """The InputError with which a simulation refuses the scenario; None if it can run."""
    from kvsim.simulation import Simulation

    try:
        Simulation(scenario, [])
    except InputError as fault:
        return fault
    return None


def _known_prompts(
    requests: Requests | None, repeat: int | None, notes: list[str]
) -> Requests | None:
    """The requests with shared prompt content: from their hashes, or repeated as the user says."""
    if requests is None or requests.hash_block_tokens is not None:
        if repeat:
            raise InputError(
                "no requests are imported"
                if requests is None
                else "the sources say what the prompts share",
                where="--prompts-repeat",
                value=repeat,
            )
        return requests
    if repeat:
        return repeated(requests, repeat)
    period = period_of([row.prompt_tokens or 0 for row in requests.rows])
    if period is not None and repeat is None:
        notes.append(
            f"{period}: the client may have sent the same prompts again, which a prefix cache "
            f"finds; they are taken as different (--prompts-repeat {period.requests} takes them as "
            "the same)"
        )
    return requests


def write_imported(imported: Imported, out: Path) -> list[Path]:
    """Write the scenario, its trace file and its observed run; returns the paths written.

    InputError if the folder cannot be written; each file is written completely or not at all.
    """
    from kvsim.plumbing.writing import replace_files

    if out.suffix != ".toml":
        raise InputError("a scenario is a .toml file", where="--out", value=str(out))
    text = f"# Written by kvsim import\n{to_toml(imported.scenario)}"
    files = {out.name: lambda path: path.write_text(text, encoding="utf-8", newline="\n")}
    written = [out]
    if imported.stream.lines is not None and imported.scenario["workload"]["kind"] == "trace":
        name = imported.scenario["workload"]["path"]
        lines = "".join(f"{line}\n" for line in imported.stream.lines)
        files = {name: lambda path: path.write_text(lines, encoding="utf-8", newline="\n")} | files
        written.append(out.parent / name)
    if imported.config is not None:
        config = json.dumps(imported.config, indent=1)
        files[out.with_suffix(CONFIG).name] = lambda path: path.write_text(
            f"{config}\n", encoding="utf-8", newline="\n"
        )
        written.append(out.with_suffix(CONFIG))
    if imported.recording is not None:
        folder = run_folder(out)
        write_recording(folder, imported.recording)
        written.append(folder)
    else:  # of an older import: it would be taken for this server's
        (run_folder(out) / MEASURED).unlink(missing_ok=True)
    replace_files(out.parent, files)
    return [Path(os.path.normpath(path)) for path in written]
