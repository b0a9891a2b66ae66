"""`python -m evidence.answers.hold`: do the answers of capacity, advise and doctor hold?

Each command is run on random scenarios (`draw`, by seed). Its answer is then simulated on ten seeds
that it has not used. No scenario is left out: a scenario without an answer has a row that says so.

    capacity   the load to copy: on how many of the ten seeds the objectives are met at this load
    advise     the best setting: whether the goal improves over the ten seeds, beyond chance
    doctor     the cure: whether its effect over the ten seeds lies within the printed interval
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evidence.answers.draw import Table, drawn
from kvsim.plumbing.errors import InputError
from kvsim.report.formats.markdown import pipe_table
from kvsim.whatif.advice.advice import Advisor
from kvsim.whatif.advice.change import goal_named
from kvsim.whatif.backends import BACKENDS
from kvsim.whatif.capacity.capacity import Capacity
from kvsim.whatif.capacity.fresh import NUM_FRESH
from kvsim.whatif.capacity.objectives import complete, kept, parse_objective
from kvsim.whatif.doctor.effect import E2E
from kvsim.whatif.doctor.examine import Doctor
from kvsim.whatif.doctor.subject import subject_of
from kvsim.whatif.intervals import Ratio, ratio_text
from kvsim.whatif.pairs import Trials, ratios
from kvsim.whatif.replicates import Replicate
from kvsim.whatif.runner import TaskRunner
from kvsim.whatif.task import make_task

FRESH = tuple(Replicate(f"seed {seed}", seed, None) for seed in range(10_000, 10_010))
SLO_S = 2.0  # to the first token, at the 99th percentile
ENOUGH = 9  # of the ten seeds


class HeldAnswer(NamedTuple):
    """The row of one scenario. said: the answer. seen: the result on the ten new seeds. held:
    whether the answer holds on them; None if there was no answer.
    """

    scenario: int
    said: str
    seen: str
    held: bool | None


def capacity_row(seed: int, requests: int, runner: TaskRunner) -> HeldAnswer:
    """Simulate the load to copy of `kvsim capacity` on ten new seeds."""
    table = drawn(seed, requests)
    objectives = complete([parse_objective(f"ttft_s.p99={SLO_S:g}")])
    asked = Capacity(table, Path(), objectives, runner, repeat=3, fresh=NUM_FRESH)
    (answer,) = asked.find(asked.load, [None])
    fresh = asked.fresh(asked.load, answer)
    if answer.interval is None or fresh is None or fresh.value is None:
        return HeldAnswer(seed, "no load keeps the objective", "", None)
    if asked.short(asked.load, answer) is not None:
        return HeldAnswer(seed, "its stream is too short to tell, as capacity says", "", None)
    there = asked.load.put(answer.subject.table, fresh.value)
    middle = asked.load.put(answer.subject.table, answer.interval.mean)
    good, half = (_keeping(each, runner, objectives) for each in (there, middle))
    said = f"{fresh.value:.3g} {asked.unit} (middle {answer.interval.mean:.3g})"
    return HeldAnswer(seed, said, f"{good} of 10 keep it ({half} the middle)", good >= ENOUGH)


def _keeping(table: Table, runner: TaskRunner, objectives: Sequence[Any]) -> int:
    tasks = [make_task(each.put(table), Path()) for each in FRESH]
    return sum(kept(outcome.rows[0], objectives) for outcome in runner.run(tasks))


def advise_row(seed: int, requests: int, runner: TaskRunner) -> HeldAnswer:
    """Simulate the best setting of `kvsim advise` on ten new seeds; goal: mean end-to-end time."""
    goal = goal_named(E2E)
    advice = Advisor(drawn(seed, requests), Path(), goal, runner, repeat=4).advise()
    if advice.reported is None:
        return HeldAnswer(seed, "no change", "", None)
    of = _over_fresh(advice.today, advice.best, runner)
    names = ", ".join(f"{each.knob.key.rpartition('.')[2]} = {each.value}" for each in advice.taken)
    said = f"{names}: {ratio_text(advice.reported)}"
    return HeldAnswer(seed, said, ratio_text(of), of.seen and goal.gain(of) > 0)


def doctor_row(seed: int, requests: int, runner: TaskRunner) -> HeldAnswer:
    """Simulate the cure of `kvsim doctor` on ten new seeds; measure: mean end-to-end time."""
    subject = subject_of(drawn(seed, requests), Path(), None, 10 * requests, 1)
    doctor = Doctor(subject, runner)
    found = doctor.diagnose()
    if found.together is None or E2E not in found.together.ratios:
        return HeldAnswer(seed, "healthy" if found.healthy else "no cause", "", None)
    stated = found.together.ratios[E2E]
    of = _over_fresh(doctor.table, found.best, runner)
    said = f"{', '.join(each.name for each in found.causes)}: {ratio_text(stated)}"
    return HeldAnswer(seed, said, ratio_text(of), stated.low <= of.mean <= stated.high)


def _over_fresh(today: Table, best: Table, runner: TaskRunner) -> Ratio:
    trials = Trials(runner, Path())
    return ratios(trials.rows(today, FRESH), trials.rows(best, FRESH), [E2E])[E2E]


ROWS: Mapping[str, Callable[[int, int, TaskRunner], HeldAnswer]] = {
    "capacity": capacity_row,
    "advise": advise_row,
    "doctor": doctor_row,
}
FIRST_SEED = {"capacity": 100, "advise": 200, "doctor": 300}
HEADS = ("scenario", "advised", "ten fresh seeds", "holds")


def ask(name: str, count: int, requests: int, jobs: int, out: Path) -> None:
    """Run one command on `count` scenarios, and write its rows as they finish."""
    rows: list[HeldAnswer] = []
    for seed in range(FIRST_SEED[name], FIRST_SEED[name] + count):
        runner = TaskRunner(BACKENDS.get("processes")(jobs=jobs))
        started = time.process_time()
        try:
            rows.append(ROWS[name](seed, requests, runner))
        except InputError as error:
            rows.append(HeldAnswer(seed, f"refused: {error}", "", None))
        spent = time.process_time() - started
        write(out, name, rows)
        words = (*map(str, rows[-1]), f"{runner.num_runs} runs", f"{spent:.0f} CPU s")
        sys.stdout.write(" | ".join(words) + "\n")
        sys.stdout.flush()


def write(out: Path, name: str, rows: Sequence[HeldAnswer]) -> None:
    """Write NAME.json, and NAME.md with the table."""
    out.mkdir(parents=True, exist_ok=True)
    data = [row._asdict() for row in rows]
    (out / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
    (out / f"{name}.md").write_text(table_of(name, rows))


def table_of(name: str, rows: Sequence[HeldAnswer]) -> str:
    """The Markdown section of one command: a sentence on how many answers hold, and the rows."""
    asked = [row for row in rows if row.held is not None]
    held = sum(bool(row.held) for row in asked)
    words = {True: "yes", False: "no", None: ""}
    cells = [(str(row.scenario), row.said, row.seen, words[row.held]) for row in rows]
    nothing = len(rows) - len(asked)
    return (
        f"## {name}\n\n{held} of {len(asked)} answers hold; of {len(rows)} scenarios {nothing} got "
        f"no advice.\n\n{pipe_table(HEADS, *cells)}\n"
    )


def main() -> None:
    """Test all three commands, and write answers.json and a table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", choices=ROWS)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    names = [given.only] if given.only else list(ROWS)
    for name in names:
        ask(name, given.count, given.requests, given.jobs, given.out)


if __name__ == "__main__":
    main()
