"""The four cards at the top of the page: output tokens per second, time to first token, sequences
running, and one more.

The last card shows the time of a transfer from prefill to decode, or the hits of a tier. Without
either it shows the share of the pool in use.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.report.measures import MEASURES, Measure, Numbers, best
from kvsim.report.numbers import listed, percent, plural, seconds
from kvsim.results.fleet import FleetSummary
from kvsim.results.result import Result
from kvsim.results.summary import RunSummary

AT_WORK = Measure(
    "Pool at work, mean",
    "at work",
    lambda run: run["memory"]["time_mean"]["used"],
    percent,
    None,
    "Keys and values of live requests; the rest was held, cached or free.",
)


def _from_tier(run: Numbers) -> float | None:
    cache = run["prefix_cache"]
    found = cache.get("host_hit_tokens")
    return (found or 0) / cache["query_tokens"] if cache["query_tokens"] else None


def _transfer_s(run: Numbers) -> float | None:
    found = run.get("transfers")
    if found is None or found["mean_s"] is None:
        return None
    return float(found["mean_s"] + (found["mean_wait_s"] or 0.0))


FROM_TIER = Measure(
    "Found in the tier",
    "in tier",
    _from_tier,
    percent,
    "higher",
    "Share of the prompt tokens looked up that came from host memory or storage.",
)
TRANSFER = Measure(
    "KV transfer, mean",
    "transfer",
    _transfer_s,
    seconds,
    "lower",
    "From prefill to decode, the wait for a port included.",
)
CARDS = (
    MEASURES["tokens_per_s"],
    MEASURES["ttft_p50"],
    MEASURES["running"],
    AT_WORK,
)
_SHARES = (AT_WORK, FROM_TIER)  # of a whole: a bar shows the value itself
_MOST_REPLICAS = 4  # with lines of their own


class CardLine(NamedTuple):
    """One run's number on a card. place: index of the run in its result. share: length of its bar
    relative to the best run, 0 to 1; None for no bar. best: whether the run has the best value.
    """

    place: int
    label: str
    text: str
    share: float | None
    best: bool


class Card(NamedTuple):
    """One number for all runs: title, meaning, and a line per run. Prefill replicas have no line:
    they are not alternatives to the decode replicas of their deployment. A fleet has a line without
    a bar, followed by those of its replicas if they are few.
    """

    title: str
    meaning: str
    lines: tuple[CardLine, ...]
    has_better: bool  # whether one direction of the number is better


def cards(result: Result) -> list[Card]:
    """The four numbers of every run, and of every fleet."""
    runs = [run.summary for run in result.runs]
    rivals = {at: run for at, run in enumerate(runs) if run.pool_of != "prefill"}
    if result.fleets and len(rivals) > _MOST_REPLICAS:
        rivals = {}
    made = []
    for measure in _measures(runs):
        top = best(measure, runs)
        values = {at: measure.value(run) for at, run in rivals.items()}
        known = {at: value for at, value in values.items() if value is not None}
        shares = {at: _share(measure, value, list(known.values())) for at, value in known.items()}
        lines = tuple(
            CardLine(at, run.label, measure.text(run), shares.get(at), at in top)
            for at, run in rivals.items()
        )
        fleets = tuple(
            CardLine(0, _fleet_name(fleet), measure.text(fleet), None, False)
            for fleet in result.fleets
        )
        made.append(
            Card(measure.title, measure.meaning, fleets + lines, measure.better is not None)
        )
    return made


def _measures(runs: Sequence[RunSummary]) -> tuple[Measure, ...]:
    """The measures of the cards. The last one is the transfer time if there are transfers, the hits
    from tiers if there are tiers, else the pool in use.
    """
    if any(run.transfers is not None for run in runs):
        return (*CARDS[:-1], TRANSFER)
    if any(run.offloading is not None for run in runs):
        return (*CARDS[:-1], FROM_TIER)
    return CARDS


def _fleet_name(fleet: FleetSummary) -> str:
    return f"{fleet.label}, all {plural(fleet.replicas, 'replica')}"


def how_to_read(found: list[Card]) -> str:
    """A sentence on what a longer bar means on which card; empty unless runs are compared."""
    if not found or sum(line.share is not None for line in found[0].lines) < 2:
        return ""
    titles = [card.title.partition(",")[0].lower() for card in found if card.has_better]
    return f"A longer bar is better for {listed(titles)}; for the others it only means more."


def _share(measure: Measure, value: float, values: list[float]) -> float | None:
    """Length of a bar: how close the value is to the best one, 0 to 1. A measure that is a share is
    its own length. None for a single value, which nothing can be compared with.
    """
    if measure in _SHARES:
        return value
    if len(values) < 2:
        return None
    best_value = min(values) if measure.better == "lower" else max(values)
    if measure.better == "lower":
        return best_value / value if value else 1.0
    return value / best_value if best_value else 0.0
