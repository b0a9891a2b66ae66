"""Recorded runs of real servers as subjects: the server as a scenario, and its measured requests.

An observed run (docs/recording-a-run.md, or NAME.run of `kvsim import`) is compared request by
request. Each run of a published collection (`kvsim validate runs`) is compared by the known means.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.interchange.to_scenario.server import server_of
from kvsim.observed.folder import ObservedRun
from kvsim.observed.measured import measured_beside, run_folder
from kvsim.observed.trial import Trial
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.observed.writing import stream_lines
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS
from kvsim.plumbing.writing import write_lines
from kvsim.readers.description import ServerSettings
from kvsim.readers.detect import read_runs
from kvsim.readers.observed_run import ObservedRunFolder
from kvsim.readers.reader import look
from kvsim.request import Request
from kvsim.scenario import load_tables
from kvsim.step_time import STEP_TIMES
from kvsim.validate.run.comparison import compare_run
from kvsim.validate.run.step_times import FORMS
from kvsim.validate.runs.simulate import simulate_trial
from kvsim.validate.served import hardware_of
from kvsim.whatif.doctor.real import Beside, beside_run, beside_trial
from kvsim.whatif.doctor.subject import DoctorSubject, subject_of
from kvsim.whatif.scenario_tables import Table

_SETTINGS = (
    *("model", "gpu", "tensor_parallel_size", "max_model_len", "block_size"),
    *("enable_prefix_caching", "max_num_seqs", "max_num_batched_tokens"),
    *("enable_chunked_prefill", "long_prefill_token_threshold", "policy", "async_scheduling"),
)


class RunRefused(NamedTuple):
    """A recorded run that cannot be examined, and the reason."""

    name: str
    reason: str


class StreamLimits(NamedTuple):
    """Limits on the examined part of a stream: the arguments of `shortened`."""

    most_requests: int
    stretches: int


def is_run(path: Path) -> bool:
    """Whether this is a recorded run, or a folder of recorded runs, rather than a scenario's
    result.
    """
    return path.is_dir() and not (path / "scenario.toml").is_file()


def run_beside(scenario: Path) -> Path | None:
    """The run that `kvsim import` wrote next to a scenario, if its requests were timed."""
    folder = run_folder(scenario)
    timed = is_run(folder) and (folder / "requests.csv").is_file()
    return folder if scenario.suffix == ".toml" and timed else None


def subjects_of_runs(
    path: Path,
    step_time: str,
    scratch: Path,
    limits: StreamLimits,
    only: str | None = None,
) -> Iterator[DoctorSubject | RunRefused]:
    """The runs at `path`.

    step_time: one of `FORMS`, or a calibration. scratch: a folder for streams, which must last as
    long as the subjects. only: of a collection, the runs with this in their name. InputError if
    `path` is no run, and for an observed run that cannot be simulated. Such a run of a collection
    is reported as `RunRefused`, and the others go on.
    """
    if ObservedRunFolder.sniff(look(path)):
        yield _observed(path, step_time, scratch, limits)
        return
    if step_time not in FORMS:
        raise InputError(
            "a calibration is of one model, and a collection has several",
            where="--step-time",
            value=step_time,
            remedy=f"name one observed run, or one of {', '.join(FORMS)}",
        )
    names = []
    for at, (_, trial) in enumerate(read_runs([path])):
        names.append(trial.name)
        if only is None or only in trial.name:
            try:
                yield _published(trial, step_time, scratch / f"{at}.jsonl", limits)
            except InputError as error:
                yield RunRefused(trial.name, str(error))
    if only is not None and not any(only in name for name in names):
        raise InputError(
            "no run of that name",
            where="--only",
            value=only,
            remedy=f"such as {'; '.join(names[:3])}",
        )


def beside_of(folder: Path, step_time: str) -> tuple[Beside, ...]:
    """Compare an observed run with its simulation."""
    return beside_run(compare_run(folder, step_time))


def _observed(folder: Path, step_time: str, scratch: Path, limits: StreamLimits) -> DoctorSubject:
    imported = folder.with_suffix(".toml")
    beside = beside_of(folder, step_time)
    if folder.suffix == ".run" and imported.is_file():
        table, place = load_tables(imported)
        subject = subject_of(table, place, None, *limits)
        measured = measured_beside(imported)
        return subject._replace(name=folder.name, beside=beside, measured=measured)
    run = ObservedRun.read(folder)
    if not isinstance(run.meta, VllmMeta):
        raise InputError(
            "a run of kvsim's own backend: its device has no GPU's figures",
            where=str(folder),
            remedy="kvsim validate run compares it; kvsim doctor examines its scenario",
        )
    table, notes = _table(run.meta, run.requests, None, scratch / "stream.jsonl")
    table["step_time"] = (
        {"kind": step_time} if step_time in FORMS else {"kind": "calibrated", "file": step_time}
    )
    subject = subject_of(table, Path(), None, *limits)
    return subject._replace(
        name=run.name, beside=beside, notes=(*run.assumptions, *notes, *subject.notes)
    )


def _published(trial: Trial, step_time: str, stream: Path, limits: StreamLimits) -> DoctorSubject:
    meta = trial.meta
    form = STEP_TIMES.parse({"kind": step_time}, "step_time")
    beside = beside_trial(trial, simulate_trial(trial, form.build(hardware_of(meta))))
    table, notes = _table(meta, trial.requests, trial.max_in_flight, stream)
    table["step_time"] = {"kind": step_time}
    subject = subject_of(table, Path(), None, *limits)
    beyond = [f"no simulated engine has {trial.beyond}"] if trial.beyond else []
    return subject._replace(
        name=trial.name,
        beside=beside,
        notes=(*trial.assumed, *beyond, *notes, *subject.notes),
    )


def _table(
    meta: VllmMeta, requests: Sequence[Request], max_in_flight: int | None, stream: Path
) -> tuple[Table, list[str]]:
    """The recorded server as a scenario with its requests in a file, and the assumptions made."""
    recorded = {name: getattr(meta, name) for name in _SETTINGS}
    if meta.pool_recorded:
        recorded["num_gpu_blocks"] = meta.num_gpu_blocks
    recorded |= {"engine": "vllm", "engine_version": meta.vllm_version}
    server = server_of(ServerSettings.parse(recorded, "meta.json"))
    in_order = sorted(requests, key=lambda request: request.arrival_ps)
    timed = ((request.arrival_ps / PS_PER_MS, request) for request in in_order)
    write_lines(stream, stream_lines(timed, meta.block_size))
    workload: dict[str, Any] = {
        "kind": "trace",
        "path": str(stream),
        "format": "mooncake",
        "hash_block_tokens": meta.block_size,
    }
    notes = list(server.notes)
    if max_in_flight is not None and in_order[-1].arrival_ps == in_order[0].arrival_ps:
        think = {"kind": "fixed", "seconds": 0.0}
        workload["arrivals"] = {"kind": "closed-loop", "num_users": max_in_flight, "think": think}
        notes.append(f"{max_in_flight:,} clients, each of which asks again when it is answered")
    elif max_in_flight is not None:
        workload["max_concurrency"] = max_in_flight
        notes.append(f"its client had at most {max_in_flight:,} requests in flight")
    return server.scenario(workload), notes
