"""The findings of `kvsim capacity --find gpus`."""

from collections.abc import Sequence
from typing import Any

from kvsim.report import numbers
from kvsim.whatif.capacity.capacity import Capacity
from kvsim.whatif.capacity.fewest import fewest, num_gpus, replica_keys, with_counts
from kvsim.whatif.capacity.load import rate_key, with_rate
from kvsim.whatif.capacity.objectives import kept
from kvsim.whatif.capacity.short_streams import short_sentences, short_stream
from kvsim.whatif.findings import CommandText, Findings, FindingsColumn, FindingsTable, Section
from kvsim.whatif.runner import Row
from kvsim.whatif.scenario_tables import Table

MOST_SENTENCES = 4  # of a verdict


def fewest_findings(capacity: Capacity, rates: Sequence[float], run: str = "") -> Findings:
    """The fewest GPUs of every allocator at every rate; without rates at the scenario's own. run:
    the command that runs the scenario.
    """
    rows: list[tuple[Any, ...]] = []
    data, words, commands = [], [], []
    keys = replica_keys(capacity.table, capacity.folder)
    names = [each.key for each in keys]
    for subject in capacity.subjects:
        for rate in rates or (None,):
            table = subject.table if rate is None else with_rate(subject.table, rate)
            counts = fewest(
                keys,
                lambda each, table=table: _kept(capacity, with_counts(table, keys, each)),  # type: ignore[misc]
            )
            at = "" if rate is None else f" at {numbers.figures(rate)} {capacity.unit}"
            found = {"label": subject.label, "rate_per_s": rate}
            if counts is None:
                words.append(f"{subject.label}: no number of replicas keeps the objectives{at}.")
                rows.append((subject.label, rate, *[None] * len(keys), None, ""))
                data.append({**found, "gpus": None})
                continue
            gpus = num_gpus(keys, counts)
            parts = [f"{key} = {count:,}" for key, count in zip(names, counts, strict=True)]
            words.append(
                f"{subject.label}: {numbers.plural(gpus, 'GPU')} keep the objectives{at}, with "
                f"{' and '.join(parts)}."
            )
            there = with_counts(table, keys, counts)
            first = _rows(capacity, there)[0]
            short = short_stream(there, capacity.folder, first)
            words += short_sentences([short], at.removeprefix(" at ") or "this rate")
            shown = [f"{each.name} {float(first[each.name]):.4g}" for each in capacity.objectives
                     if first.get(each.name) and each.name != "requests.rejected"]  # fmt: skip
            rows.append((subject.label, rate, *counts, gpus, ", ".join(shown)))
            data.append({**found, "gpus": gpus, **dict(zip(names, counts, strict=True))})
            asked = [] if rate is None else [(rate_key(table), rate)]
            sets = (*asked, *zip(names, counts, strict=True))
            commands.append(" ".join((run, *(f"--set {key}={value}" for key, value in sets))))
    objectives = [str(each) for each in capacity.objectives]
    table_of = FindingsTable(
        "The fewest GPUs that keep the objectives",
        f"Objectives: {', '.join(objectives)}, and a queue that does not only grow, in every one "
        f"of {numbers.plural(len(capacity.seeds), 'seed')}; the numbers are those of the first.",
        [
            "",
            FindingsColumn(capacity.unit, lambda rate: numbers.figures(rate) if rate else ""),
            *(FindingsColumn(name, _count) for name in names),
            FindingsColumn("GPUs", _count),
            "numbers",
        ],
        rows,
    )
    sections: list[Section] = [table_of]
    if run and commands:
        sections.append(CommandText("Run it", "", "\n".join(commands), lead=True))
    runs = capacity.runner.num_runs
    return Findings(
        table_of.title,
        [("objectives", ", ".join(objectives)), ("runs", str(runs))],
        words,
        sections,
        capacity.table,
        {"objectives": objectives, "fewest": data, "sentences": words, "runs": runs},
        num_verdict=max(1, min(MOST_SENTENCES, len(words))),
    )


def _count(count: int | None) -> str:
    return numbers.NOTHING if count is None else numbers.count(count)


def _rows(capacity: Capacity, table: Table) -> list[Row]:
    outcomes = capacity.runner.run([capacity.task(table, seed) for seed in capacity.seeds])
    return [outcome.rows[0] if outcome.rows else {} for outcome in outcomes]


def _kept(capacity: Capacity, table: Table) -> bool:
    return all(row and kept(row, capacity.objectives) for row in _rows(capacity, table))
