"""Sentences on accepted and rejected draft tokens."""

from collections.abc import Sequence

from kvsim.report import numbers
from kvsim.report.names import called
from kvsim.results.summary import RunSummary, SpeculationSummary


def drafted(runs: Sequence[RunSummary]) -> list[str]:
    """A sentence per run with speculative decoding."""
    return [
        _sentence(run.label, run.speculation)
        for run in runs
        if run.speculation is not None and run.speculation.draft_tokens
    ]


def _sentence(label: str, found: SpeculationSummary) -> str:
    return (
        f"{called(label)} verified {numbers.count(found.draft_tokens)} drafts and "
        f"accepted {numbers.percent(found.acceptance_rate)} of them, "
        f"{numbers.number(found.mean_acceptance_length)} tokens a verification; slots held for "
        f"drafts and not used were {numbers.percent(found.draft_slots)} of the pool."
    )
