"""The answers: what each allocator holds out, over seeds, with the runs on both sides of the edge.

Each seed has its own bisection over its own requests, so the edges of several seeds are a sample,
and their interval says how far the answer would move with other requests.
"""

import copy
import math
from collections.abc import Sequence
from pathlib import Path

from kvsim.memory import ALLOCATORS
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.keys import put
from kvsim.scenario import Scenario
from kvsim.whatif.capacity.answers import (
    Answer,
    CapacitySubject,
    Edge,
    GoodputPoint,
    Replicas,
    Tuning,
)
from kvsim.whatif.capacity.bisection import bisect
from kvsim.whatif.capacity.load import unit, with_rate
from kvsim.whatif.capacity.objectives import Objective, kept, request_limits_s
from kvsim.whatif.capacity.questions import (
    QUESTIONS,
    Question,
    Table,
    prepared,
    utilization_of,
)
from kvsim.whatif.capacity.search import Search, SearchResult, search
from kvsim.whatif.intervals import mean_interval, paired
from kvsim.whatif.limits import pinned
from kvsim.whatif.runner import TaskRunner
from kvsim.whatif.task import Task, make_task


class Capacity:
    """The questions about one scenario under its objectives."""

    def __init__(
        self,
        table: Table,
        folder: Path,
        objectives: Sequence[Objective],
        runner: TaskRunner,
        *,
        repeat: int = 1,
        tolerance: float = 0.02,
    ) -> None:
        self.folder, self.objectives, self.runner = folder, tuple(objectives), runner
        self.tolerance, self.table, self.unit = tolerance, table, unit(table)
        scenario = Scenario.from_table(table, folder)
        table = pinned(table, prepared(table, folder).max_model_len)
        self.seeds = range(scenario.seed, scenario.seed + repeat)
        self.subjects = subjects_of(table, scenario)
        self._limits_s = request_limits_s(objectives)

    def find(self, question: Question, rates: Sequence[float | None]) -> list[Answer]:
        """The edge of every allocator at every rate (None: the scenario's own)."""
        cases = [
            (subject, rate, subject.table if rate is None else with_rate(subject.table, rate))
            for subject in self.subjects
            for rate in rates
        ]
        searches = [
            self._search(question, table, seed) for _, _, table in cases for seed in self.seeds
        ]
        found = iter(search(self.runner, searches))
        answers = []
        for subject, rate, _ in cases:
            edges = tuple(_edge(seed, next(found)) for seed in self.seeds)
            answers.append(Answer(subject, rate, edges))
        return answers if question.name != "pool" else [self._utilized(each) for each in answers]

    def with_any_pool(self, answers: Sequence[Answer]) -> dict[str, Answer]:
        """By label, the rate that an allocator holds out in the largest pool that was tried: of
        those for which no pool keeps the objectives at some rate.
        """
        found = {}
        for answer in answers:
            lost = answer.edges[0].bracket.lost
            if answer.interval is None and lost is not None and answer.subject.label not in found:
                table = QUESTIONS["pool"].put(answer.subject.table, lost)
                subject = answer.subject._replace(table=table)
                searches = [self._search(QUESTIONS["rate"], table, seed) for seed in self.seeds]
                edges = zip(self.seeds, search(self.runner, searches), strict=True)
                found[subject.label] = Answer(subject, None, tuple(_edge(*each) for each in edges))
        return found

    def tune(self, key: str, values: Sequence[int]) -> list[tuple[CapacitySubject, list[Tuning]]]:
        """The rate that each value of a setting holds out, allocator by allocator; values whose
        difference from the best is not seen over the seeds are told to be as good.
        """
        question = QUESTIONS["rate"]
        cases = []
        for subject in self.subjects:
            for value in values:
                table = copy.deepcopy(subject.table)
                put(table, key, value, "--find")
                cases.append((subject, value, table if _can_be(table, self.folder) else None))
        searches = [
            self._search(question, table, seed)
            for _, _, table in cases
            if table is not None
            for seed in self.seeds
        ]
        found = iter(search(self.runner, searches))
        answers: dict[str, list[tuple[int, Answer | None]]] = {}
        for subject, value, there in cases:
            answer = None
            if there is not None:
                edges = tuple(_edge(seed, next(found)) for seed in self.seeds)
                answer = Answer(subject._replace(table=there), None, edges)
            answers.setdefault(subject.label, []).append((value, answer))
        return [(subject, _compared(answers[subject.label])) for subject in self.subjects]

    def replicas(self, answer: Answer, rates: Sequence[float]) -> list[Replicas]:
        """How many replicas each rate takes, by the highest rate one holds out; none where it
        holds out none. Both numbers are run: requests are dealt out at random, so that each replica
        meets the same kind of arrivals at its share of the rate.
        """
        if answer.interval is None or answer.interval.mean <= 0:
            return []
        found = []
        for rate in rates:
            num = max(1, math.ceil(rate / answer.interval.mean))
            found.append(
                Replicas(
                    rate,
                    num,
                    max(1, math.ceil(rate / min(answer.values or []))),
                    self._num_kept(answer.subject, rate / num),
                    self._num_kept(answer.subject, rate / (num - 1)) if num > 1 else None,
                    len(self.seeds),
                )
            )
        return found

    def goodput(self, answer: Answer, points: int = 9) -> list[GoodputPoint]:
        """The share of well served requests at rates around the highest one."""
        if answer.interval is None or not self._limits_s:
            return []
        rates = [answer.interval.mean * (0.25 + 1.5 * at / (points - 1)) for at in range(points)]
        tasks = [
            self._task(with_rate(answer.subject.table, rate), seed)
            for rate in rates
            for seed in self.seeds
        ]
        rows = [outcome.rows[0] for outcome in self.runner.run(tasks)]
        num = len(self.seeds)
        return [
            GoodputPoint(
                rate,
                mean_interval([float(row["within"]) for row in rows[at * num : (at + 1) * num]]),
                sum(bool(row["saturated"]) for row in rows[at * num : (at + 1) * num]),
            )
            for at, rate in enumerate(rates)
        ]

    def _num_kept(self, subject: CapacitySubject, rate: float) -> int:
        tasks = [self._task(with_rate(subject.table, rate), seed) for seed in self.seeds]
        return sum(kept(outcome.rows[0], self.objectives) for outcome in self.runner.run(tasks))

    def _search(self, question: Question, table: Table, seed: int) -> Search:
        def task(value: float) -> Task | None:
            there = question.put(table, value)
            return self._task(there, seed) if question.possible(there, self.folder) else None

        return Search(
            bisect(question.bounds(table, self.folder, self.tolerance)),
            task,
            lambda row: kept(row, self.objectives),
        )

    def _task(self, table: Table, seed: int) -> Task:
        return make_task({**table, "seed": seed}, self.folder, self._limits_s)

    def _utilized(self, answer: Answer) -> Answer:
        interval = answer.interval
        share = (
            None
            if interval is None
            else utilization_of(answer.subject.table, self.folder, max(answer.values or [0]))
        )
        return Answer(answer.subject, answer.rate_per_s, answer.edges, share)


def subjects_of(table: Table, scenario: Scenario) -> list[CapacitySubject]:
    """The scenario's allocators, each with the tables that hold it alone."""
    entries = table["allocator"]
    entries = entries if isinstance(entries, list) else [entries]
    found = []
    for entry, options, label in zip(entries, scenario.allocator, scenario.labels(), strict=True):
        alone = copy.deepcopy(table)
        alone["allocator"] = [entry]
        found.append(CapacitySubject(label, ALLOCATORS.name_of(options), alone))
    return found


def _can_be(table: Table, folder: Path) -> bool:
    """Whether a scenario is one that can be run."""
    try:
        prepared(table, folder)
    except InputError:
        return False
    return True


def _compared(answers: Sequence[tuple[int, Answer | None]]) -> list[Tuning]:
    """Each value against the one that holds out the highest mean rate, on the same seeds."""
    known = [
        (answer.interval.mean, at)
        for at, (_, answer) in enumerate(answers)
        if answer is not None and answer.interval is not None
    ]
    if not known:
        return [Tuning(value, answer, "keeps them at no rate") for value, answer in answers]
    _, top = max(known)
    best = answers[top][1]
    assert best is not None
    assert best.values is not None
    tunings = []
    for at, (value, answer) in enumerate(answers):
        if answer is None:
            behind = "cannot be run"
        elif answer.values is None:
            behind = "keeps them at no rate"
        elif at == top:
            behind = "the best"
        else:
            difference = paired(best.values, answer.values)
            share = difference.relative or 0.0
            behind = f"{100 * share:+.3g} %" if difference.seen else "no difference seen"
        tunings.append(Tuning(value, answer, behind))
    return tunings


def _edge(seed: int, found: SearchResult) -> Edge:
    inside, outside = found.bracket
    return Edge(
        seed,
        found.bracket,
        None if inside is None else found.rows.get(inside),
        None if outside is None else found.rows.get(outside),
    )
