"""Findings of `kvsim measure`: which numbers to measure first, and the commands that read them."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvsim.report.numbers import NOTHING, listed, plural
from kvsim.whatif.findings import CommandText, Findings, FindingsTable
from kvsim.whatif.unmeasured.assumption import (
    COPIES,
    COUNTERS,
    HASHES,
    LENGTHS,
    SESSIONS,
    TRANSFERS,
)
from kvsim.whatif.unmeasured.effects import LoadAnswer, LoadEffect, Unmeasured

# Of servers with one load measured, 8 of 10 predicted times of other loads are within this share
# (docs/step-times.md). A number that moves the answer by less need not be measured.
NEAR = 0.2
RECORD = "kvsim record http://HOST:8000 --watch --seconds 600 --device GPU --out mine"
COMMANDS = {
    COUNTERS: RECORD,
    LENGTHS: "kvsim import mine bench.json --device GPU --out mine.toml",
    SESSIONS: "kvsim import mine trace.jsonl --device GPU --out mine.toml",
    HASHES: "kvsim import mine trace.jsonl --device GPU --out mine.toml",
    COPIES: "kvsim calibrate tier --model MODEL --device cuda --out tier.toml",
    TRANSFERS: "kvsim import metrics.txt --device GPU --out mine.toml",
}


def unmeasured_findings(found: Unmeasured, run: str) -> Findings:
    """The findings of `kvsim measure`. run: the command that runs the described scenario."""
    first = [each for each in found.effects if matters(each)]
    commands = list(dict.fromkeys(COMMANDS[each.assumption.found] for each in first))
    sections: list[Any] = [_table(found)]
    if commands:
        sections.append(
            CommandText(
                "Read them with",
                "HOST, GPU, MODEL and the files are yours. Then run mine.toml.",
                "\n".join(commands),
                lead=True,
            )
        )
    return Findings(
        "What to measure",
        [("assumed numbers", str(len(found.effects)))],
        [*_verdict(found, first), *_notes(found)],
        sections,
        found.table,
        _data(found, first, commands, run),
        num_verdict=2,
    )


def matters(effect: LoadEffect) -> bool:
    """Whether half or double of the number changes the answer by more than the error of a fitted
    simulation (NEAR).
    """
    return effect.moved is not None and effect.moved > NEAR


def _verdict(found: Unmeasured, first: Sequence[LoadEffect]) -> list[str]:
    keys = listed([_name(each) for each in first])
    told = _answer(found, found.described)
    what = f"{found.measure.title}: {told}, if the load is as described."
    if found.settings:
        one, other = found.settings
        what = f"{other} against {one}: {found.measure.title} {told}, if the load is as described."
    if not first:
        return [what, "No assumed number moves it by more than 20 %: the answer holds for others."]
    said = f"Measure first: {keys}. Half or double of each moves the answer by over 20 %."
    turning = [_name(each) for each in found.effects if found.turns(each)]
    if turning:
        said += f" With another {' or '.join(turning)} the other setting is better."
    return [what, said]


def _notes(found: Unmeasured) -> list[str]:
    notes = ["Each row changes one number alone, on the same seed."]
    failed = [
        each.refused
        for effect in found.effects
        for each in (effect.half, effect.double)
        if each.refused is not None
    ]
    if failed:
        notes.append(f"{plural(len(failed), 'run')} would be refused: {failed[0]}.")
    return notes


def _table(found: Unmeasured) -> FindingsTable:
    rows = [
        (
            _name(each),
            each.assumption.said,
            _answer(found, each.half),
            _answer(found, each.double),
            each.assumption.found,
        )
        for each in found.effects
    ]
    note = "The answer at half and at double of each number; those that move it most come first."
    return FindingsTable(
        found.measure.title, note, ("assumed", "now", "half", "double", "a server has it in"), rows
    )


def _answer(found: Unmeasured, outcome: LoadAnswer) -> str:
    if outcome.answer is None:
        return NOTHING if outcome.refused is None else "refused"
    if not found.settings:
        return found.measure.form(outcome.answer)
    return f"{100 * outcome.answer:+.0f} %"


def _name(effect: LoadEffect) -> str:
    return effect.assumption.key.removeprefix("workload.")


def _data(
    found: Unmeasured, first: Sequence[LoadEffect], commands: Sequence[str], run: str
) -> Mapping[str, Any]:
    return {
        "measure": found.measure.title,
        "settings": list(found.settings),
        "described": found.described.answer,
        "assumed": [
            {
                "key": each.assumption.key,
                "now": each.assumption.said,
                "half": each.half.answer,
                "double": each.double.answer,
                "moved": each.moved,
                "found_in": each.assumption.found,
            }
            for each in found.effects
        ],
        "measure_first": [each.assumption.key for each in first],
        "commands": list(commands),
        "run": run,
    }
