"""The calibration file: measured step times of one model on one device, and the fit to them."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options
from kvsim.plumbing.reading.json_text import read_object
from kvsim.plumbing.shipped import shipped_folder
from kvsim.plumbing.writing import write_text
from kvsim.step_time.calibrated.fitted import Fit
from kvsim.step_time.calibrated.identity import ModelIdentity, device_name
from kvsim.step_time.calibrated.samples import Kind, SampleRow, SampleSet, kind_of
from kvsim.version import VERSION

MOST_EMBEDDED_ROWS = 1000
Facts = dict[str, Any]  # figures of a measurement, each under its name, for the reader


class SampleRecord(Options):
    """The fitted samples: name and digest of their file, and the rows if they are few."""

    file: str
    sha256: str
    rows: int
    by_kind: dict[Kind, int]
    embedded: tuple[SampleRow, ...] | None = None

    @classmethod
    def of(cls, samples: SampleSet) -> "SampleRecord":
        """The record of `samples`, with their rows if at most MOST_EMBEDDED_ROWS."""
        return cls(
            file=samples.name,
            sha256=samples.sha256,
            rows=len(samples.rows),
            by_kind=Counter(kind_of(sample.shape) for sample in samples.samples()),
            embedded=samples.rows if len(samples.rows) <= MOST_EMBEDDED_ROWS else None,
        )


class Measurement(Options):
    """Conditions of samples that kvsim measured itself.

    device: sms, l2, memory, driver, clocks, host load. software: torch, cuda, triton, python.
    backend: name, block size, store, graph, capture sizes. method: warm-up, repeats, rounds,
    statistic, clock, seed. ceilings: of device copy, GEMM and the host link. sentinel: the
    configuration measured again and again, and how it spread.
    """

    device: Facts
    software: Facts
    backend: Facts
    method: Facts
    ceilings: Facts
    sentinel: Facts


class CalibrationFile(Options):
    """The content of a calibration file. Names end with their units; `_ps` are integer picoseconds.

    device, model: None if unknown; such a file serves any. source: where the samples come from.
    measured: None if they were not measured by kvsim.
    """

    format: Literal["kvsim-calibration/1"]
    created: str
    tool: str
    source: str = ""
    device: str | None = None
    model: ModelIdentity | None = None
    tensor_parallel_size: int = Field(default=1, ge=1)
    measured: Measurement | None = None
    samples: SampleRecord
    fit: Fit

    @classmethod
    def now(cls, **fields: Any) -> "CalibrationFile":
        """A file made now by this version of kvsim."""
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(format="kvsim-calibration/1", created=created, tool=f"kvsim {VERSION}", **fields)

    def dump(self) -> dict[str, Any]:
        """The file as JSON objects, without keys that have their default value."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def check_device(self, name: str, where: str) -> None:
        """Raise InputError if the file was made on another device than the one named."""
        if self.device is not None and device_name(name) != device_name(self.device):
            raise InputError(
                f"the calibration was made on {self.device}",
                where=where,
                value=name,
                remedy="calibrate on this device, or choose step_time.kind = 'roofline'",
            )

    def check_model(self, model: ModelIdentity, where: str) -> None:
        """Raise InputError if the file was made with a model of another shape."""
        difference = self.model and self.model.difference(model)
        if difference:
            raise InputError(
                f"the calibration was made with another model: {difference}",
                where=where,
                remedy="calibrate with this model, or choose step_time.kind = 'roofline'",
            )

    def check_tensor_parallel(self, size: int, where: str) -> None:
        """Raise InputError if the file was made on another number of devices."""
        if size != self.tensor_parallel_size:
            raise InputError(
                f"the calibration was made with tensor_parallel_size {self.tensor_parallel_size}",
                where=where,
                value=size,
            )


def write_calibration(path: Path, calibration: CalibrationFile) -> None:
    """Write the file whole or not at all."""
    write_text(path, json.dumps(calibration.dump(), indent=1) + "\n")


def read_calibration(path: Path) -> CalibrationFile:
    """Read and check a calibration file; InputError in one line if it is not one."""
    return CalibrationFile.parse(read_object(path), str(path))


def find_calibration(name: str, where: str, folder: Path | None = None) -> CalibrationFile:
    """The calibration at a path (it ends in .json; relative ones start from `folder`), or the
    shipped one of this name.
    """
    if name.endswith(".json"):
        return read_calibration((folder or Path()) / name)
    shipped = {path.stem: path for path in sorted(shipped_folder("calibration").glob("*.json"))}
    if name not in shipped:
        raise InputError(
            "unknown calibration",
            where=where,
            value=repr(name),
            remedy=f"shipped: {', '.join(shipped) or 'none'}; or give the path of a .json file",
        )
    return read_calibration(shipped[name])
