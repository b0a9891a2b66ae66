"""The cards of the page: output tokens per second, time to first token, sequences running and the
share of the pool at work.
"""

from typing import NamedTuple

from kvsim.report.measures import MEASURES, Measure, best
from kvsim.report.numbers import listed, percent
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
    """The number of one run. place: of the run in its result. share: of the best one, for a bar
    that is longer where the number reads better; None where the run has no such number, and no bar.
    best: whether it is best.
    """

    place: int
    label: str
    text: str
    share: float | None
    best: bool


class Card(NamedTuple):
    """One number of all runs: its title, its meaning, and a line each run. Prefill replicas have
    none: they are no alternative to the decode replicas of their deployment.
    """

    title: str
    meaning: str
    lines: tuple[CardLine, ...]
    has_better: bool  # whether one direction of the number is better


def cards(result: Result) -> list[Card]:
    """The four numbers of every run."""
    runs = [run.summary for run in result.runs]
    made = []
    for measure in CARDS:
        top = best(measure, runs)
        rivals = {at: run for at, run in enumerate(runs) if run.pool_of != "prefill"}
        values = {at: measure.value(run) for at, run in rivals.items()}
        known = {at: value for at, value in values.items() if value is not None}
        shares = {at: _share(measure, value, list(known.values())) for at, value in known.items()}
        lines = tuple(
            CardLine(at, run.label, measure.text(run), shares.get(at), at in top)
            for at, run in rivals.items()
        )
        made.append(Card(measure.title, measure.meaning, lines, measure.better is not None))
    return made


def how_to_read(found: list[Card]) -> str:
    """The meaning of a longer bar, by card; empty if there is one run."""
    if not found or len(found[0].lines) < 2:
        return ""
    titles = [card.title.partition(",")[0].lower() for card in found if card.has_better]
    return f"A longer bar is better for {listed(titles)}; for the others it only means more."


def _share(measure: Measure, value: float, values: list[float]) -> float:
    """How close a value is to the best of all, as a share."""
    best_value = min(values) if measure.better == "lower" else max(values)
    if measure.better == "lower":
        return best_value / value if value else 1.0
    return value / best_value if best_value else 0.0
