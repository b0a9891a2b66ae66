"""Sentences on the hits of tiers after the device, and on the cost of their loads."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvsim.report import numbers
from kvsim.report.names import called
from kvsim.results.summary import RunSummary

if TYPE_CHECKING:
    from kvsim.results.summary_beyond import TiersSummary


def behind_device(runs: Sequence[RunSummary]) -> list[str]:
    """Sentences on each run with tiers: hits by tier, waits, and the time saved by loads."""
    return [
        sentence
        for run in runs
        if run.offloading is not None
        for sentence in _sentences(run, run.offloading)
    ]


def _sentences(run: RunSummary, found: "TiersSummary") -> Iterator[str]:
    hits, behind = run.prefix_cache.hit_tokens, run.prefix_cache.host_hit_tokens or 0
    tiers = "the tier" if len(found.tiers) == 1 else "the tiers"
    if not behind:
        names = numbers.listed([each.kind for each in found.tiers])
        yield f"{called(run.label)} found nothing in {tiers} behind the device ({names})."
        return
    tokens = numbers.listed(
        [f"{numbers.plural(each.hit_tokens or 0, 'token')} in {each.kind}" for each in found.tiers]
    )
    yield (
        f"{called(run.label)} had {numbers.percent(behind / hits)} of its hits from {tiers} behind "
        f"the device: {tokens}."
    )
    if found.loads_awaited:
        yield (
            f"Sequences waited {numbers.plural(found.loads_awaited, 'time')} for what is loaded, "
            f"{numbers.seconds(found.load_wait_s)} on average."
        )
    if found.recompute_s is None or found.saved_s is None:
        return
    again = f"To compute what was loaded would take {numbers.seconds(found.recompute_s)} of steps"
    if found.saved_s >= 0:
        yield f"{again}; less all waits, loads saved {numbers.seconds(found.saved_s)}."
    else:
        yield f"{again}; all waits together were {numbers.seconds(-found.saved_s)} longer."
