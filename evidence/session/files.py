"""The files of a session: measured steps, and steps to measure, as JSON lines."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvsim.backend.measure.grid import StepPlan
from kvsim.backend.measure.summary import MeasuredSamples
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import loads
from kvsim.plumbing.writing import write_text


def write_samples(path: Path, measured: MeasuredSamples) -> None:
    """Write the rows as JSON lines, and the facts to PATH with the suffix .facts.json. Each file is
    written completely or not at all.
    """
    write_lines(path, measured.rows)
    facts = json.dumps(measured.facts, indent=1) + "\n"
    write_text(path.with_suffix(".facts.json"), facts)


def read_samples(path: Path) -> MeasuredSamples:
    """Read the files that `write_samples` wrote."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    facts = json.loads(path.with_suffix(".facts.json").read_text(encoding="utf-8"))
    return MeasuredSamples(rows, facts)


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write JSON lines; the file is written completely or not at all."""
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def read_plans(path: Path) -> list[StepPlan]:
    """Plans from JSON lines as `StepPlan.from_record` takes them; InputError names a bad line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot read the steps", where=str(path), value=error) from None
    plans = []
    for number, line in enumerate(lines, 1):
        try:
            plans.append(StepPlan.from_record(loads(line)))
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(
                "no step to measure",
                where=f"{path}:{number}",
                value=error,
                remedy='a line is {"chunks": [[new, prior], ...], "contexts": [...]}',
            ) from None
    return plans
