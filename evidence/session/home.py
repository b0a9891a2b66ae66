"""`python -m evidence.session.home ARCHIVE`: turn a session's archive into files of the project.

Samples that were not fitted in the session are fitted here; samples of an interrupted measurement
are made from its log. It writes calibration/DEVICE-MODEL.json with its row in
calibration/README.md, and reports/DEVICE/ (proofs, kernels, costs, and a README.md with every
figure). It also writes the observed runs in reports/observed-DEVICE/, each compared with its
simulation. Changes for the project's own README are printed. Nothing is claimed that the archive
does not contain.
"""

import argparse
import csv
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence.session.archive import unpack
from evidence.session.files import read_samples, write_samples
from evidence.session.stage import Journal
from kvsim.backend.measure.summary import samples_of_log
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.writing import write_text

TABLE_HEAD = "| name | model, device |"  # of calibration/README.md's first table
SAMPLES, LOG = ".samples.jsonl", ".log.jsonl"
COPIED = ("prove.json", "kernels.csv", "kernels.json", "compare.json", "session.json")
KINDS = ("decode", "prefill", "mixed")
SEED = 0


@dataclass(slots=True)
class Home:
    """Adds one session's files to the project at `root`. said: a line about each."""

    session: Path
    root: Path
    device: str = ""
    said: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)

    def bring(self) -> None:
        """Add all files; InputError if the session has no samples and no run."""
        self._name_device()
        reports = self.root / "reports" / self.device
        reports.mkdir(parents=True, exist_ok=True)
        for name in COPIED:
            if (self.session / name).exists():
                shutil.copyfile(self.session / name, reports / name)
                self.said.append(f"reports/{self.device}/{name}")
        calibrations = [made for stem in self._measured() if (made := self._calibrate(stem))]
        self._observed(calibrations)
        write_text(reports / "README.md", "\n".join(self._report()) + "\n")
        self.said.append(f"reports/{self.device}/README.md")

    def _measured(self) -> list[str]:
        """Names of the measurements, from their samples or their logs."""
        found = (
            path.name.removesuffix(suffix)
            for suffix in (SAMPLES, LOG)
            for path in self.session.glob(f"*{suffix}")
        )
        return sorted(set(found))

    def _name_device(self) -> None:
        """Set the device's name to the catalogue's, if it is in the catalogue."""
        from kvsim.device import named_device

        for path in sorted(self.session.glob("run-*/meta.json")):
            name = str(json.loads(path.read_text(encoding="utf-8"))["gpu"])
            break
        else:
            name = next(
                (str(self._samples(stem).facts["device"]["name"]) for stem in self._measured()), ""
            )
        if not name:
            raise InputError("nothing was measured and nothing observed", where=str(self.session))
        try:
            self.device = named_device(name).name
        except InputError:
            self.device = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")

    def _samples(self, stem: str) -> Any:
        """The samples of a measurement; if no round ended, those made from its log."""
        path = self.session / (stem + SAMPLES)
        if not path.exists():
            write_samples(path, samples_of_log(self.session / (stem + LOG)))
        return read_samples(path)

    def _calibrate(self, stem: str) -> Path | None:
        """Path of a measurement's calibration: the one fitted in the session, or fitted here."""
        from kvsim.backend.calibrate.calibrate import fitted
        from kvsim.backend.simulated.models import find_model
        from kvsim.step_time.calibrated.file import read_calibration, write_calibration

        subject, _, store = stem.rpartition("-")
        name = f"{self.device}-{subject}" + ("" if store == "paged" else f"-{store}")
        target = self.root / "calibration" / f"{name}.json"
        own = self.session / f"{stem}.json"
        try:
            if own.exists():
                file = read_calibration(own)
            else:
                config = self.session / f"{subject}.config.json"
                samples = self._samples(stem)
                model = find_model(str(config), samples.facts["model"]["dtype"]).build()
                file = fitted(model, samples, SEED).file
        except InputError as error:
            self.said.append(f"no calibration of {stem}: {error}")
            return None
        target.parent.mkdir(parents=True, exist_ok=True)
        write_calibration(target, file)
        assert file.measured is not None
        method = file.measured.method
        errors = method["held_out_of_a_simulated_trace"]
        words = " / ".join(
            f"{100 * errors[kind]['mape']:.1f}" if kind in errors else "-" for kind in KINDS
        )
        rounds = method["rounds"]
        row = (
            f"| {name} | {subject} {_dtype(file.model)}, {file.measured.device['name']}; {store} "
            f"| {file.samples.rows} steps in {rounds} finished rounds of `kvsim`'s own backend "
            f"| {words} % |"
        )
        self.rows.append(row)
        self.said.append(f"calibration/{name}.json")
        _put_row(self.root / "calibration" / "README.md", name, row, self.said)
        return target

    def _observed(self, calibrations: list[Path]) -> None:
        """Add the recorded runs, each compared with its simulation under the calibration of its
        store.
        """
        from kvsim.step_time.calibrated.file import read_calibration
        from kvsim.validate.run.comparison import compare_run

        for folder in sorted(self.session.glob("run-*")):
            label = folder.name.removeprefix("run-")
            target = self.root / "reports" / f"observed-{self.device}" / label
            shutil.copytree(folder, target, dirs_exist_ok=True)
            self.said.append(f"reports/observed-{self.device}/{label}")
            store = "" if label == "paged" else "-contiguous"
            chosen = [path for path in calibrations if path.stem.endswith(store or path.stem)]
            chosen = chosen or calibrations
            if not chosen:
                continue
            try:
                summary = compare_run(target, read_calibration(chosen[0])).summary()
            except InputError as error:
                self.said.append(f"no comparison of {label}: {error}")
                continue
            text = json.dumps({"calibration": chosen[0].stem, **summary}, indent=1) + "\n"
            write_text(target / "comparison.json", text)

    def _report(self) -> Iterator[str]:
        """Lines of the report's README.md."""
        yield f"# A session on one {self.device}"
        yield ""
        yield "Made from a session's archive by `python -m evidence.session.home ARCHIVE`."
        yield ""
        yield "| stage | what became of it |"
        yield "|---|---|"
        for stage, entry in Journal.open(self.session).entries.items():
            rest = {key: value for key, value in entry.items() if key not in ("status", "warnings")}
            words = ", ".join(f"{key} {_brief(value)}" for key, value in rest.items())
            yield f"| {stage} | {entry['status']}: {words} |"
        yield from self._kernels()
        yield from self._runs()
        if self.rows:
            yield ""
            yield "| name | model, device | samples | held-out error (decode / prefill / mixed) |"
            yield "|---|---|---|---|"
            yield from self.rows

    def _kernels(self) -> Iterator[str]:
        path = self.session / "kernels.csv"
        if not path.exists():
            return
        with path.open(encoding="utf-8", newline="") as file:
            points = sum(1 for _ in csv.DictReader(file))
        yield ""
        yield f"Time here over that of the shipped tables, {points} points (kernels.csv):"
        yield ""
        yield "| kernel | points | p10 | median | p90 |"
        yield "|---|---|---|---|---|"
        found = self.session / "kernels.json"
        kinds = json.loads(found.read_text(encoding="utf-8"))["kinds"] if found.exists() else {}
        for kind, at in kinds.items():
            yield f"| {kind} | {at['n']} | {at['p10']:.3f} | {at['p50']:.3f} | {at['p90']:.3f} |"

    def _runs(self) -> Iterator[str]:
        folder = self.root / "reports" / f"observed-{self.device}"
        paths = sorted(folder.glob("*/comparison.json"))
        if not paths:
            return
        yield ""
        yield "| run | steps decided as recorded | TTFT | TPOT | E2E | by |"
        yield "|---|---|---|---|---|---|"
        for path in paths:
            found = json.loads(path.read_text(encoding="utf-8"))
            again, errors = found["lock_step"], found["errors"]
            means = (_percent(errors.get(name)) for name in ("ttft_s", "tpot_s", "e2e_s"))
            decided = f"{again['equal']} of {again['steps']}"
            cells = (path.parent.name, decided, *means, found["calibration"])
            yield f"| {' | '.join(cells)} |"


def _put_row(path: Path, name: str, row: str, said: list[str]) -> None:
    """Put the row into the first table of calibration/README.md, replacing the row of the same
    name.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    at = next((at for at, line in enumerate(lines) if line.startswith(TABLE_HEAD)), None)
    if at is None:
        said.append(f"no table in {path.name}; its row is: {row}")
        return
    end = at
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    table = [line for line in lines[at:end] if not line.startswith(f"| {name} |")]
    write_text(path, "\n".join([*lines[:at], *table, row, *lines[end:]]) + "\n")
    said.append(f"calibration/README.md: the row of {name}")


def _dtype(model: Any) -> str:
    return "" if model is None else str(model.dtype)


def _brief(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def _percent(error: Any) -> str:
    mean = error["mean"] if isinstance(error, dict) else error
    return "-" if mean is None else f"{100 * mean:+.1f} %"


def main(arguments: list[str] | None = None) -> int:
    """Add a session to the project. Exit code 0; 2 with a one-line error for an invalid or empty
    archive.
    """
    parser = argparse.ArgumentParser(prog="python -m evidence.session.home", description=__doc__)
    parser.add_argument("archive", type=Path, help="a session's archive, or its folder")
    parser.add_argument("--root", type=Path, default=Path(), help="of the project")
    given = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            session = Path(scratch)
            if given.archive.is_dir():
                shutil.copytree(given.archive, session, dirs_exist_ok=True)
            else:
                unpack(given.archive, session)
            home = Home(session, given.root)
            home.bring()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - this is a command
        return 2
    print("\n".join(home.said))  # noqa: T201
    print("\n".join(["for README.md, where it says what was measured:", *home.rows]))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
