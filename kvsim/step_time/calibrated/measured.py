"""Samples that kvsim's backend measured: their facts, and the rows that are not fitted.

A measurement times the steps of a grid, which are fitted. It also times steps of a simulated trace
(`source` is "held-out"), to test the fit.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import read_object
from kvsim.step_time.calibrated.file import CalibrationFile, Measurement, SampleRecord
from kvsim.step_time.calibrated.fit import errors_by_kind
from kvsim.step_time.calibrated.fitted import Errors, Fit
from kvsim.step_time.calibrated.identity import ModelIdentity, device_name
from kvsim.step_time.calibrated.samples import Kind, Sample, SampleRow, SampleSet

HELD_OUT = "held-out"
CONDITIONS = tuple(Measurement.model_fields)
Facts = dict[str, Any]


class SampleParts(NamedTuple):
    """Samples that are fitted, and those that the fit is tested on."""

    fitted: list[Sample]
    held_out: list[Sample]


def parts_of(rows: Sequence[SampleRow], where: str) -> SampleParts:
    """Split the rows by source; InputError if none are left to fit."""
    found = SampleParts(
        [row.sample() for row in rows if row.source != HELD_OUT],
        [row.sample() for row in rows if row.source == HELD_OUT],
    )
    if not found.fitted:
        raise InputError(
            "every sample is held out", where=where, value=len(rows), limit="some of a grid"
        )
    return found


def facts_beside(samples: Path) -> Facts | None:
    """The facts in the file next to the samples (SAMPLES.facts.json); None if there is none.

    InputError for other content.
    """
    path = samples.with_suffix(".facts.json")
    if samples.suffix != ".jsonl" or not path.exists():
        return None
    facts = read_object(path)
    for key in (*CONDITIONS, "model"):
        if not isinstance(facts.get(key), dict):
            raise InputError("no facts of a measurement", where=f"{path}: {key}",
                             value=facts.get(key))  # fmt: skip
    return facts


def measured_model(facts: Facts, name: str | None) -> ModelIdentity:
    """The model of a measurement by its shape, and by `name`; InputError where the model of that
    name has another shape.
    """
    shape = facts["model"]
    known = {
        "num_layers": shape.get("layers"),
        "hidden_size": shape.get("hidden"),
        "heads": shape.get("heads"),
        "kv_heads": shape.get("kv_heads"),
        "head_dim": shape.get("head_dim"),
        "intermediate_size": shape.get("intermediate"),
        "vocab_size": shape.get("vocab"),
        "dtype": shape.get("dtype"),
        "quantization": shape["weights"] or "none" if "weights" in shape else None,
        "kv_bytes_per_token": shape.get("kv_bytes_per_token"),
    }
    measured = ModelIdentity.parse({"name": "the measured model", **known}, "model")
    difference = name and ModelIdentity.named(name).difference(measured)
    if difference:
        raise InputError(f"the steps were measured with another model: {difference}",
                         where="--model", remedy="name the model that was measured")  # fmt: skip
    return measured.model_copy(update={"name": name}) if name else measured


def measured_device(facts: Facts, name: str | None) -> str:
    """The device of a measurement; InputError where `name` is another."""
    measured = device_name(str(facts["device"].get("name")))
    if name is not None and device_name(name) != measured:
        raise InputError("the steps were measured on another device", where="--device",
                         value=name, limit=measured)  # fmt: skip
    return measured


def measured_file(
    samples: SampleSet, facts: Facts, fit: Fit, held_out: Sequence[Sample], **fields: Any
) -> tuple[CalibrationFile, dict[Kind, Errors]]:
    """The calibration with its conditions, and the errors of the fit on the held-out samples."""
    errors = errors_by_kind(fit.formula, held_out)
    conditions = {key: facts[key] for key in CONDITIONS}
    conditions["method"] = conditions["method"] | {
        "refused": facts.get("refused", 0),
        "held_out_of_a_simulated_trace": {
            kind: error.model_dump() for kind, error in errors.items()
        },
    }
    file = CalibrationFile.now(
        measured=Measurement(**conditions), samples=SampleRecord.of(samples), fit=fit, **fields
    )
    return file, errors
