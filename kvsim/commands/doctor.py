"""`kvsim doctor`: find what slows a server down, and the flag that fixes it."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.commands.arguments import AsJson, Changes, Jobs, Verbose
from kvsim.plumbing.errors import InputError

if TYPE_CHECKING:
    from kvsim.whatif.doctor.diagnosis import Diagnosis
    from kvsim.whatif.doctor.runs import RunRefused, StreamLimits
    from kvsim.whatif.doctor.subject import DoctorSubject
    from kvsim.whatif.runner import TaskRunner


def doctor(
    target: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO-or-RUN",
            help="A TOML file, the name of a recipe, or a folder with an observed run or a "
            "collection of runs. Measurements in NAME.run beside NAME.toml are shown too.",
        ),
    ],
    allocator: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Allocator to examine (default: the first paged one)."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Examine only runs of a collection that have TEXT in their name."
        ),
    ] = None,
    step_time: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Step time of a real run: auto, kernels, fitted, roofline, or a calibration file.",
        ),
    ] = "auto",
    requests: Annotated[int, typer.Option(min=100, help="Most requests to examine.")] = 1000,
    repeat: Annotated[
        int,
        typer.Option(
            min=3,
            metavar="SEEDS",
            help="Seeds to search on. As many more test the result, and as many again confirm it.",
        ),
    ] = 4,
    jobs: Jobs = None,
    set_: Changes = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write diagnosis.json, .md and .html.")
    ] = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Diagnose a server: causes by harm, the evidence for each, and the flag that cures it.

    The ledger gives suspects. A suspect becomes a cause if a run without it is better by more than
    5 %, beyond chance. For a recorded run, kvsim shows its measurements next to the simulation.
    """
    from kvsim.commands.answers import show, task_runner, write
    from kvsim.plumbing.writing import check_writable
    from kvsim.whatif.doctor.doctor_findings import doctor_findings
    from kvsim.whatif.doctor.runs import RunRefused, StreamLimits
    from kvsim.whatif.seconds_range import with_interval

    if out is not None:
        check_writable(out)
    answers = []
    chosen = {"allocator": allocator, "only": only, "step_time": step_time, "set_": set_ or []}
    with _subjects(target, StreamLimits(requests, 3 * repeat), chosen) as (subjects, several):
        for subject in subjects:
            with task_runner(jobs, subject.name or "") as runner:
                diagnosis = _examined(subject, runner, repeat, several)
            if isinstance(diagnosis, RunRefused):
                answers.append({"run": diagnosis.name, "refused": diagnosis.reason})
                if not as_json:
                    typer.echo(f"{diagnosis.name}: cannot be examined: {diagnosis.reason}")
                continue
            findings = with_interval(doctor_findings(diagnosis), diagnosis.subject.folder)
            answers.append(findings.data)
            if not as_json:
                if name := diagnosis.subject.name:
                    typer.echo(f"{name}\n{'─' * len(name)}")
                show(findings, verbose=verbose)
            if out is not None:
                page = write(
                    findings,
                    out / _file_name(diagnosis.subject.name) if several else out,
                    "diagnosis",
                )
                if not as_json:
                    typer.echo(str(page))
    if as_json:
        typer.echo(json.dumps(answers if several else answers[0], indent=2))


def _examined(
    subject: "DoctorSubject | RunRefused", runner: "TaskRunner", repeat: int, several: bool
) -> "Diagnosis | RunRefused":
    """Diagnose one server. several: if this server cannot be simulated, return the refusal instead
    of raising, so that the remaining servers of the collection are still examined.
    """
    from kvsim.whatif.doctor.examine import Doctor
    from kvsim.whatif.doctor.runs import RunRefused

    if isinstance(subject, RunRefused):
        return subject
    try:
        return Doctor(subject, runner, repeat=repeat).diagnose()
    except InputError as error:
        if not several:
            raise
        return RunRefused(subject.name, str(error))


@contextmanager
def _subjects(
    target: str, limits: "StreamLimits", chosen: dict[str, Any]
) -> "Iterator[tuple[Iterator[DoctorSubject | RunRefused], bool]]":
    """The servers to examine, and whether `target` is a collection of runs. Request streams of real
    runs are written to a temporary folder that is removed on exit.
    """
    from tempfile import TemporaryDirectory

    from kvsim.observed.measured import measured_beside
    from kvsim.scenario import checked_tables, find_scenario, recipes
    from kvsim.whatif.doctor.runs import beside_of, is_run, run_beside, subjects_of_runs
    from kvsim.whatif.doctor.subject import subject_of

    label, set_, step_time = chosen["allocator"], chosen["set_"], chosen["step_time"]
    path = Path(target)
    if is_run(path) and target not in recipes():
        idle = {"--allocator": label, "--set": set_}
        for name, value in idle.items():
            if value:
                raise InputError("a real run is what it was", where=name, value=value)
        several = not (path / "meta.json").is_file()
        if chosen["only"] is not None and not several:
            raise InputError("is for a collection of runs", where="--only", value=chosen["only"])
        with TemporaryDirectory(prefix="kvsim-doctor-") as scratch:
            yield (
                subjects_of_runs(path, step_time, Path(scratch), limits, chosen["only"]),
                several,
            )
        return
    if chosen["only"] is not None:
        raise InputError("is for a collection of runs", where="--only", value=chosen["only"])
    with checked_tables(target, set_) as (table, folder):
        subject = subject_of(table, folder, label, *limits)
        if not set_ and label is None:
            subject = subject._replace(measured=measured_beside(find_scenario(target)))
        run = None if set_ or label else run_beside(find_scenario(target))
        if run is not None:
            subject = subject._replace(name=run.name, beside=beside_of(run, step_time))
        elif step_time != "auto":
            raise InputError(
                "is for a real run",
                where="--step-time",
                value=step_time,
                remedy="a scenario names its own in [step_time]",
            )
        yield iter([subject]), False


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", name).strip("-")[:100]
