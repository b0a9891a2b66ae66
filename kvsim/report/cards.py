"""The cards of the page: output tokens per second, time to first token, sequences running and the
share of the pool at work.
"""

from typing import NamedTuple

from kvsim.report.measures import MEASURES, Measure, best
from kvsim.report.numbers import percent
from kvsim.results.result import Result

AT_WORK = Measure(
    "Pool at work, mean",
    "at work",
    lambda run: run["memory"]["time_mean"]["used"],
    percent,
    None,
    "Keys and values of live requests; the rest was held, cached or free.",
)
CARDS = (
    MEASURES["tokens_per_s"],
    MEASURES["ttft_p50"],
    MEASURES["running"],
    AT_WORK,
)


class CardLine(NamedTuple):
    """The number of one run. share: of the largest one, for a bar. best: whether it is best."""

    label: str
    text: str
    share: float
    best: bool


class Card(NamedTuple):
    """One number of all runs: its title, its meaning, and a line each run."""

    title: str
    meaning: str
    lines: tuple[CardLine, ...]


def cards(result: Result) -> list[Card]:
    """The four numbers of every run."""
    runs = [run.summary for run in result.runs]
    made = []
    for measure in CARDS:
        top = best(measure, runs)
        values = [measure.value(run) or 0.0 for run in runs]
        largest = max(values)
        lines = tuple(
            CardLine(run.label, measure.text(run), value / largest if largest else 0.0, at in top)
            for at, (run, value) in enumerate(zip(runs, values, strict=True))
        )
        made.append(Card(measure.title, measure.meaning, lines))
    return made
