"""Sentences on each run's refused, recomputed and copied tokens."""

from collections.abc import Sequence

from kvsim.report import numbers
from kvsim.report.names import called
from kvsim.results.summary import RunSummary


def costs(runs: Sequence[RunSummary]) -> list[str]:
    """A sentence per run on refused requests, preemptions and recomputed tokens."""
    refused = [run.requests.rejected for run in runs]
    all_refuse_as_many = len(runs) > 1 and refused[0] and len(set(refused)) == 1
    sentences = [f"Each {_refused(refused[0])}."] if all_refuse_as_many else []
    for run in runs:
        paid = _paid(run)
        if run.requests.rejected and not all_refuse_as_many:
            paid.insert(0, _refused(run.requests.rejected))
        if paid:
            sentences.append(f"{called(run.label)} {numbers.listed(paid)}.")
    return sentences


def _refused(rejected: int) -> str:
    return f"refused {numbers.plural(rejected, 'request')} that could never fit"


def _paid(run: RunSummary) -> list[str]:
    paid = []
    if run.preemptions:
        times = numbers.plural(run.preemptions, "time")
        again = run.recomputed_tokens
        lost = f" ({numbers.plural(again, 'token')} computed again)" if again else ""
        paid.append(f"preempted sequences {times}{lost}")
    if run.copied_bytes:
        paid.append(f"copied {numbers.size(run.copied_bytes)} of KV on the device")
    if run.swapped_bytes:
        paid.append(f"swapped {numbers.size(run.swapped_bytes)} of KV to the host and back")
    hits = run.prefix_cache.hit_rate
    if hits:
        paid.append(f"found {numbers.percent(hits)} of its prompt tokens in the prefix cache")
    return paid
