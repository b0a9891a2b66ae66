"""`kvsim doctor`: what a server suffers from, and the flag that cures it."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.plumbing.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from kvsim.whatif.doctor.diagnosis import Diagnosis
    from kvsim.whatif.doctor.runs import Refused, StreamLimits
    from kvsim.whatif.doctor.subject import DoctorSubject
    from kvsim.whatif.runner import TaskRunner


def doctor(
    target: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO-or-RUN",
            help="A TOML file or the name of a recipe (with NAME.run beside it, what the real "
            "server did is shown too); or a folder with an observed run, or a collection of runs.",
        ),
    ],
    allocator: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Whose server (default: the first paged one)."),
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Of a collection, runs with this name.")
    ] = None,
    step_time: Annotated[
        str,
        typer.Option(metavar="FILE", help="Of an observed run: a calibration, or roofline."),
    ] = "roofline",
    requests: Annotated[
        int, typer.Option(min=100, help="Examine so many requests of a stream at most.")
    ] = 1000,
    repeat: Annotated[
        int,
        typer.Option(min=2, metavar="SEEDS", help="Seeds to search on, to test on and to tell by."),
    ] = 4,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes (default: one a processor).")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="A.B=VALUE", help="Change one key; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write diagnosis.json and diagnosis.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Say what a server suffers from, worst first, on what evidence, and which flag cures it.

    What the ledger shows is a suspicion; it becomes a cause where a run without it is better,
    beyond chance and by more than a twentieth. Of a real run, what it did stands beside what the
    simulated server does.
    """
    from rich.console import Console

    from kvsim.plumbing.writing import check_writable
    from kvsim.whatif.backends import BACKENDS
    from kvsim.whatif.doctor import page
    from kvsim.whatif.doctor.runs import Refused, StreamLimits
    from kvsim.whatif.runner import TaskRunner

    if out is not None:
        check_writable(out)
    stderr, answers = Console(stderr=True), []
    chosen = {"allocator": allocator, "only": only, "step_time": step_time, "set_": set_ or []}
    with _patients(target, StreamLimits(requests, 3 * repeat), chosen) as (patients, several):
        for patient in patients:
            diagnosis: Diagnosis | Refused
            if isinstance(patient, Refused):
                diagnosis = patient
            else:
                with stderr.status("") as status:
                    runner = TaskRunner(BACKENDS.get("processes")(jobs=jobs), _counted(status))
                    diagnosis = _examined(patient, runner, repeat, several)
            answers.append(
                {"run": diagnosis.name, "refused": diagnosis.reason}
                if isinstance(diagnosis, Refused)
                else page.as_dict(diagnosis)
            )
            if not as_json:
                _print(diagnosis, Console(highlight=False))
            if out is not None and not isinstance(diagnosis, Refused):
                folder = out / _file_name(diagnosis.patient.name) if several else out
                _write(folder, diagnosis)
                if not as_json:
                    typer.echo(str(folder / "diagnosis.html"))
    if as_json:
        typer.echo(json.dumps(answers if several else answers[0], indent=2))


def _examined(
    patient: "DoctorSubject", runner: "TaskRunner", repeat: int, several: bool
) -> "Diagnosis | Refused":
    """Examine one; of several, one that cannot be run is told and stops nobody else."""
    from kvsim.whatif.doctor.examine import Doctor
    from kvsim.whatif.doctor.runs import Refused

    try:
        return Doctor(patient, runner, repeat=repeat).diagnose()
    except InputError as error:
        if not several:
            raise
        return Refused(patient.name, str(error))


def _counted(status: "Status") -> Callable[[int], None]:
    return lambda runs: status.update(f"{runs} runs")


@contextmanager
def _patients(
    target: str, limits: "StreamLimits", chosen: dict[str, Any]
) -> "Iterator[tuple[Iterator[DoctorSubject | Refused], bool]]":
    """Whom to examine, one after the other, and whether they are of a collection; their streams
    lie in a folder that is removed at the end.
    """
    from tempfile import TemporaryDirectory

    from kvsim.scenario import find_scenario, load_tables, recipes
    from kvsim.whatif.doctor.runs import ROOFLINE, beside_of, is_run, patients_of_runs, run_beside
    from kvsim.whatif.doctor.subject import patient_of

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
                patients_of_runs(path, step_time, Path(scratch), limits, chosen["only"]),
                several,
            )
        return
    if chosen["only"] is not None:
        raise InputError("is for a collection of runs", where="--only", value=chosen["only"])
    table, folder = load_tables(target, set_)
    patient = patient_of(table, folder, label, *limits)
    run = None if set_ or label else run_beside(find_scenario(target))
    if run is not None:
        patient = patient._replace(name=run.name, beside=beside_of(run, step_time))
    elif step_time != ROOFLINE:
        raise InputError(
            "is for a real run",
            where="--step-time",
            value=step_time,
            remedy="a scenario names its own in [step_time]",
        )
    yield iter([patient]), False


def _write(folder: Path, diagnosis: "Diagnosis") -> None:
    from kvsim.plumbing.writing import replace_files, text_writer
    from kvsim.whatif.doctor import page

    text = json.dumps(page.as_dict(diagnosis), indent=2)
    replace_files(
        folder,
        {
            "diagnosis.json": text_writer(f"{text}\n"),
            "diagnosis.html": text_writer(page.make_page(diagnosis)),
        },
    )


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", name).strip("-")[:100]


def _print(diagnosis: "Diagnosis | Refused", console: "Console") -> None:
    from kvsim.commands.whatif_tables import printed
    from kvsim.whatif.doctor import page
    from kvsim.whatif.doctor.runs import Refused
    from kvsim.whatif.doctor.words import sentences

    if isinstance(diagnosis, Refused):
        console.print(f"{diagnosis.name}: cannot be examined: {diagnosis.reason}", markup=False)
        return
    if diagnosis.patient.name:
        console.rule(diagnosis.patient.name, align="left")
    tables = [page.signs_table(diagnosis)]
    if diagnosis.patient.beside:
        tables.insert(0, page.real_table(diagnosis))
    if diagnosis.findings:
        tables.append(page.findings_table(diagnosis))
    for cells in tables:
        console.print(printed(cells))
        console.print(cells.note, markup=False)
        console.print()
    for line in sentences(diagnosis):
        console.print(line, markup=False)
