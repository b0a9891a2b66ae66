"""Sentences on a capacity: what meets the objectives, and by how much if nothing does."""

import math
from collections.abc import Sequence

from kvsim.report.numbers import count, figures, plural
from kvsim.whatif.capacity.answers import CapacityAnswer, mean_text
from kvsim.whatif.capacity.fresh import CONFIDENCE, NUM_FRESH, SHARE, FreshLoad
from kvsim.whatif.capacity.objectives import Objective, broken
from kvsim.whatif.intervals import difference_text, more_seeds
from kvsim.whatif.notes import noted


def pool_sentence(
    answer: CapacityAnswer, objectives: Sequence[Objective], most: CapacityAnswer | None, unit: str
) -> str:
    """The sentence on one allocator at one rate.

    most: the highest rate with any pool, if no pool meets the objectives.
    """
    rate = answer.rate_per_s
    at = answer.subject.label + ("" if rate is None else f" at {figures(rate)} {unit}")
    if answer.interval is None:
        return f"{at}: no pool keeps the objectives. {_not_memory(answer, objectives, most, unit)}"
    tokens = mean_text(answer.interval, whole=True)
    if answer.utilization_to_set is not None:
        share = answer.utilization_to_set
        verdict = f"gpu_memory_utilization {share:g} is enough for every seed"
    else:
        verdict = "more than this device has beside the model: it takes a larger one, or several"
    return f"{at}: a pool of {tokens} tokens keeps the objectives; {verdict}."


def rate_sentence(answers: Sequence[CapacityAnswer], unit: str) -> str | None:
    """The sentence on the highest rate and its allocator, with the others compared seed by seed;
    None if no allocator meets the objectives at any rate.
    """
    known = [answer for answer in answers if answer.interval is not None]
    if not known:
        return None
    if len(known) == 1:
        (only,) = known
        return f"{only.subject.label} keeps the objectives up to {mean_text(only.interval)} {unit}."
    top = max(known, key=lambda answer: answer.interval.mean if answer.interval else 0.0)
    behind = {
        answer.subject.label: difference_text(top.values or [], answer.values or [])
        for answer in known
        if answer is not top
    }
    others = [f"{label} {text}" for label, text in behind.items()]
    more = more_seeds([*behind.values()], len(top.edges))
    assert top.interval is not None
    return (
        f"{top.subject.label} keeps the objectives up to the highest rate, "
        f"{mean_text(top.interval)} {unit}. Against it, on the same seeds: {', '.join(others)}."
        + (f" {more}" if more else "")
    )


def fresh_sentence(label: str, fresh: FreshLoad | None, unit: str, seeds: int) -> str:
    """The sentence on the recommended load and how many fresh seeds meet the objectives there.
    seeds: of the search.
    """
    if fresh is None:
        these = "this one" if seeds == 1 else f"these {seeds:,}"
        return f"No seed beside {these} was tried. --fresh {NUM_FRESH} tries others."
    if not fresh.random:
        return "No seed changes these requests. Other requests were not tried."
    if fresh.value is None:
        return (
            f"No lower load was found that all {fresh.num_seeds} fresh seeds of {label} keep: the "
            "objectives fail by chance at any."
        )
    sure = round(100 * (1 - SHARE**fresh.num_seeds))
    words = f"{10 * SHARE:.0f} of 10 others do"
    confident = "" if sure < 100 * CONFIDENCE else f", so {words} ({sure} % confidence)"
    return (
        f"To be sure, plan with {figures(fresh.value)} {unit}: all {fresh.num_seeds} fresh seeds "
        f"keep the objectives there{confident}. Some may break them at the middle above."
    )


def notes_on(answers: Sequence[CapacityAnswer]) -> list[str]:
    """Notes on the runs just inside the edges."""
    edges = [edge for answer in answers for edge in answer.edges]
    return noted([edge.inside for edge in edges if edge.inside is not None])


def _not_memory(
    answer: CapacityAnswer, objectives: Sequence[Objective], most: CapacityAnswer | None, unit: str
) -> str:
    edge = answer.edges[0]
    tried = ""
    if edge.outside is not None and edge.bracket.lost is not None:
        why = ", ".join(broken(edge.outside, objectives))
        tried = f"With {count(edge.bracket.lost)} tokens, {why}: it is not memory that is short. "
    if most is None or most.interval is None or answer.rate_per_s is None:
        return tried + "Nor does any lower rate keep them with as large a pool."
    num = math.ceil(answer.rate_per_s / most.interval.mean)
    return (
        f"{tried}One replica holds out {mean_text(most.interval)} {unit} with as large a pool, so "
        f"this rate takes {plural(num, 'replica')} at least."
    )
