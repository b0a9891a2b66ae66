"""Many bisections in parallel: each round runs the next value of each search."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.whatif.capacity.bisection import Asking, Bracket
from kvsim.whatif.runner import Row, TaskRunner
from kvsim.whatif.task import Task


class Search(NamedTuple):
    """One bisection. asking: the generator of values. task(value): the run to execute, None if the
    value is known to fail. kept(row): whether a run meets the objectives.
    """

    asking: Asking
    task: Callable[[float], Task | None]
    kept: Callable[[Row], bool]


class SearchResult(NamedTuple):
    """The bracket of one search, and the row of every value run; None for a value that could not be
    run.
    """

    bracket: Bracket
    rows: dict[float, Row | None]


def search(runner: TaskRunner, searches: Sequence[Search]) -> list[SearchResult]:
    """Run all searches to their ends in parallel; InputError if no value of one search could be
    run.
    """
    found: list[Bracket | None] = [None] * len(searches)
    rows: list[dict[float, Row | None]] = [{} for _ in searches]
    errors: list[str | None] = [None] * len(searches)
    asked = {at: next(search.asking) for at, search in enumerate(searches)}
    while asked:
        tasks = {at: searches[at].task(value) for at, value in asked.items()}
        runs = [(at, task) for at, task in tasks.items() if task is not None]
        outcomes = dict(
            zip((at for at, _ in runs), runner.run([task for _, task in runs]), strict=True)
        )
        still: dict[int, float] = {}
        for at, value in asked.items():
            outcome = outcomes.get(at)
            row = outcome.rows[0] if outcome is not None and outcome.rows else None
            rows[at][value] = row
            if outcome is not None and outcome.error is not None:
                errors[at] = outcome.error
            try:
                still[at] = searches[at].asking.send(row is not None and searches[at].kept(row))
            except StopIteration as end:
                found[at] = end.value
        asked = still
    done = []
    for bracket, seen, error in zip(found, rows, errors, strict=True):
        assert bracket is not None
        if error is not None and not any(seen.values()):
            raise InputError(error)
        done.append(SearchResult(bracket, seen))
    return done
