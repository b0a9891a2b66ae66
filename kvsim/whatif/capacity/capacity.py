"""Search the highest load of each allocator, over seeds, with the runs on both sides of the edge.

Each seed has its own bisection over its own requests, so the edges of several seeds are a sample.
Their interval shows how much the answer depends on the requests.
"""

import copy
import math
from collections.abc import Sequence
from pathlib import Path

from kvsim.memory import ALLOCATORS
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.capacity.answers import (
    BEST,
    CapacityAnswer,
    CapacitySubject,
    Edge,
    GoodputPoint,
    Replicas,
    Tuning,
)
from kvsim.whatif.capacity.bisection import bisect
from kvsim.whatif.capacity.fleet_size import replicas_in, smallest, with_replicas
from kvsim.whatif.capacity.fresh import FreshLoad, fresh_load
from kvsim.whatif.capacity.load import unit, with_rate
from kvsim.whatif.capacity.objectives import Objective, kept, request_limits_s
from kvsim.whatif.capacity.questions import (
    QUESTIONS,
    TUNED,
    Question,
    load_question,
    prepared,
    utilization_of,
)
from kvsim.whatif.capacity.search import Search, SearchResult, search
from kvsim.whatif.capacity.short_streams import (
    ShortStream,
    long_enough,
    longer_for,
    short_stream,
)
from kvsim.whatif.intervals import difference_text, mean_interval
from kvsim.whatif.runner import TaskRunner
from kvsim.whatif.scenario_tables import Table, pinned
from kvsim.whatif.task import Task, make_task


class Capacity:
    """Answers capacity questions about one scenario and its objectives."""

    def __init__(
        self,
        table: Table,
        folder: Path,
        objectives: Sequence[Objective],
        runner: TaskRunner,
        *,
        repeat: int = 1,
        tolerance: float = 0.02,
        fresh: int = 0,
    ) -> None:
        """fresh: number of seeds beyond those of the search that must also meet the objectives at
        the recommended load; 0: no such load is computed.
        """
        self.load, self.num_fresh = load_question(table), fresh
        self.folder, self.objectives, self.runner = folder, tuple(objectives), runner
        self.tolerance, self.table, self.unit = tolerance, table, unit(table)
        scenario = Scenario.from_table(table, folder)
        table = pinned(table, prepared(table, folder).max_model_len)
        self.seeds = range(scenario.seed, scenario.seed + repeat)
        self.subjects = subjects_of(table, scenario)
        self._limits_s = request_limits_s(objectives)

    def find(self, question: Question, rates: Sequence[float | None]) -> list[CapacityAnswer]:
        """The edge of every allocator at every rate (None: at the scenario's own rate)."""
        cases = [
            (subject, rate, subject.table if rate is None else with_rate(subject.table, rate))
            for subject in self.subjects
            for rate in rates
        ]
        edges = self._edges(question, [table for *_, table in cases])
        pool = question.name == "pool"
        return [
            CapacityAnswer(
                subject, rate, found, self._utilization(subject, found) if pool else None
            )
            for (subject, rate, _), found in zip(cases, edges, strict=True)
        ]

    def with_any_pool(self, answers: Sequence[CapacityAnswer]) -> dict[str, CapacityAnswer]:
        """The highest rate of each allocator with the largest pool tried, by its label.

        Only for allocators with no pool that meets the objectives at some rate.
        """
        subjects: dict[str, CapacitySubject] = {}
        for answer in answers:
            subject, lost = answer.subject, answer.edges[0].bracket.lost
            if answer.interval is None and lost is not None and subject.label not in subjects:
                table = QUESTIONS["pool"].put(subject.table, lost)
                subjects[subject.label] = subject._replace(table=table)
        edges = self._edges(QUESTIONS["rate"], [each.table for each in subjects.values()])
        return {
            label: CapacityAnswer(subject, None, found)
            for (label, subject), found in zip(subjects.items(), edges, strict=True)
        }

    def tune(self, name: str, values: Sequence[int]) -> list[tuple[CapacitySubject, list[Tuning]]]:
        """The highest rate at each value of a setting, by allocator. A value counts as good as the
        best if no difference is seen over the seeds.
        """
        tables = [
            [_with_setting(subject.table, name, value, self.folder) for value in values]
            for subject in self.subjects
        ]
        possible = [each for row in tables for each in row if each]
        edges = iter(self._edges(self.load, possible))
        tuned = []
        for subject, row in zip(self.subjects, tables, strict=True):
            answers: list[CapacityAnswer | None] = []
            for each in row:
                there = subject._replace(table=each or {})
                answers.append(CapacityAnswer(there, None, next(edges)) if each else None)
            tuned.append((subject, _compared(values, answers)))
        return tuned

    def replicas(self, answer: CapacityAnswer, rates: Sequence[float]) -> list[Replicas]:
        """Number of replicas for each rate: the smallest fleet that meets the objectives, found by
        running fleets, each seed by itself.

        None where one replica meets them at no rate. The first fleet tried is the rate divided by
        the highest rate of the unchanged scenario.
        """
        if answer.interval is None or answer.interval.mean <= 0:
            return []
        table, before = answer.subject.table, replicas_in(answer.subject.table)
        divided = [max(1, math.ceil(rate * before / answer.interval.mean)) for rate in rates]
        left = {
            at: long_enough(table, self.folder, answer.edges[0].inside, rate)
            for at, rate in enumerate(rates)
        }
        found: dict[int, Replicas] = {}
        while left:
            searches = [
                self._sizes(with_rate(table, rates[at]), divided[at], seed, least)
                for at, least in left.items()
                for seed in self.seeds
            ]
            results = iter(search(self.runner, searches))
            longer: dict[int, int] = {}
            for at, least in left.items():
                of_seeds = [next(results) for _ in self.seeds]
                there = with_rate(table, rates[at])
                fleet = self._fleet(there, rates[at], divided[at], of_seeds, least)
                if fleet is not None:
                    found[at] = fleet
                    needed = longer_for(fleet.short, least)
                    longer |= {} if needed is None else {at: needed}
            left = longer
        return [found[at] for at in sorted(found)]

    def _fleet(
        self, table: Table, rate: float, divided: int, found: Sequence[SearchResult], least: int
    ) -> Replicas | None:
        """The combined answer of the seeds; None if one of them found no fleet that meets the
        objectives.
        """
        enough = [int(each.bracket.kept) for each in found if each.bracket.kept is not None]
        if len(enough) < len(found):
            return None
        num = math.ceil(sum(enough) / len(enough))
        kept_num, fewer = (sum(each <= most for each in enough) for most in (num, num - 1))
        fleet, row = with_replicas(table, enough[0], least), found[0].rows[float(enough[0])]
        return Replicas(
            *(rate, num, max(enough), divided, kept_num, fewer, len(enough), least),
            short_stream(fleet, self.folder, row),
        )

    def short(self, question: Question, answer: CapacityAnswer) -> ShortStream | None:
        """Whether the first seed's stream is too short for a reliable answer."""
        table, edge = answer.subject.table, answer.edges[0]
        if edge.bracket.kept is None:
            return None
        if answer.rate_per_s is not None:
            table = with_rate(table, answer.rate_per_s)
        there = question.put(table, edge.bracket.kept)
        return short_stream({**there, "seed": edge.seed}, self.folder, edge.inside)

    def fresh(self, question: Question, answer: CapacityAnswer) -> FreshLoad | None:
        """The highest load at which fresh seeds also meet the objectives, searched downwards from
        the lowest edge; None without an edge, or if not requested.
        """
        if not self.num_fresh or answer.values is None:
            return None
        table = answer.subject.table
        first, second = (
            Simulation(Scenario.from_table({**table, "seed": seed}, self.folder)).stream.requests
            for seed in (self.seeds[-1], self.seeds[-1] + 1)
        )
        if first == second:
            return FreshLoad(min(answer.values), 0, random=False)

        def keeps(value: float, seeds: Sequence[int]) -> list[bool]:
            there = question.put(table, value)
            outcomes = self.runner.run([self.task(there, seed) for seed in seeds])
            rows = [each.rows[0] if each.rows else None for each in outcomes]
            return [row is not None and kept(row, self.objectives) for row in rows]

        seeds = range(self.seeds[-1] + 1, self.seeds[-1] + 1 + self.num_fresh)
        whole = question.unit == "users"
        return fresh_load(min(answer.values), seeds, keeps, whole=whole)

    def _sizes(self, table: Table, start: int, seed: int, requests: int) -> Search:
        return Search(
            smallest(start),
            lambda value: self.task(with_replicas(table, int(value), requests), seed),
            lambda row: kept(row, self.objectives),
        )

    def goodput(self, answer: CapacityAnswer, points: int = 9) -> list[GoodputPoint]:
        """The share of requests that meet all limits, at rates around the highest one."""
        if answer.interval is None or not self._limits_s:
            return []
        rates = [answer.interval.mean * (0.25 + 1.5 * at / (points - 1)) for at in range(points)]
        tasks = [
            self.task(with_rate(answer.subject.table, rate), seed)
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

    def _edges(self, question: Question, tables: Sequence[Table]) -> list[tuple[Edge, ...]]:
        """The edges of every table, one for each seed; all searches run in parallel."""
        cases = [(table, seed) for table in tables for seed in self.seeds]
        found = search(self.runner, [self._search(question, *each) for each in cases])
        edges = [_edge(seed, each) for (_, seed), each in zip(cases, found, strict=True)]
        num = len(self.seeds)
        return [tuple(edges[at : at + num]) for at in range(0, len(edges), num)]

    def _search(self, question: Question, table: Table, seed: int) -> Search:
        def task(value: float) -> Task | None:
            there = question.put(table, value)
            return self.task(there, seed) if question.possible(there, self.folder) else None

        return Search(
            bisect(question.bounds(table, self.folder, self.tolerance)),
            task,
            lambda row: kept(row, self.objectives),
        )

    def task(self, table: Table, seed: int) -> Task:
        """One simulation of these tables."""
        return make_task({**table, "seed": seed}, self.folder, self._limits_s)

    def _utilization(self, subject: CapacitySubject, edges: Sequence[Edge]) -> float | None:
        """The gpu_memory_utilization that leaves the largest pool of the seeds; None without."""
        kept = [edge.bracket.kept for edge in edges]
        pools = [tokens for tokens in kept if tokens is not None]
        if len(pools) < len(kept):
            return None
        return utilization_of(subject.table, self.folder, max(pools))


def subjects_of(table: Table, scenario: Scenario) -> list[CapacitySubject]:
    """Each allocator of the scenario, with the tables that have only this allocator."""
    entries = table["allocator"]
    entries = entries if isinstance(entries, list) else [entries]
    found = []
    for entry, options, label in zip(entries, scenario.allocator, scenario.labels(), strict=True):
        alone = copy.deepcopy(table)
        alone["allocator"] = [entry]
        found.append(CapacitySubject(label, ALLOCATORS.name_of(options), alone))
    return found


def _with_setting(table: Table, name: str, value: int, folder: Path) -> Table | None:
    """The tables with one setting at this value; None if they are not a valid scenario."""
    table = TUNED[name].put(table, name, value)
    try:
        prepared(table, folder)
    except InputError:
        return None
    return table


def _compared(values: Sequence[int], answers: Sequence[CapacityAnswer | None]) -> list[Tuning]:
    """Each value compared with the one of the highest mean rate, on the same seeds."""
    means = [each.interval.mean if each and each.interval else -1.0 for each in answers]
    top = max(reversed(range(len(means))), key=means.__getitem__)
    best = answers[top] if means[top] >= 0 else None
    tunings = []
    for at, (value, answer) in enumerate(zip(values, answers, strict=True)):
        if answer is None and best is not None:
            behind = "cannot be run"
        elif answer is None or answer.values is None:
            behind = "keeps them at no rate"
        elif at == top:
            behind = BEST
        else:
            assert best is not None
            behind = difference_text(best.values or [], answer.values)
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
