"""What became of drafted tokens, in words."""

from collections.abc import Sequence

from kvsim.report import numbers
from kvsim.report.measures import Summary
from kvsim.report.names import called


def drafted(runs: Sequence[Summary]) -> list[str]:
    """A sentence for each run that verified drafts."""
    return [_sentence(run) for run in runs if run.get("speculation", {}).get("draft_tokens")]


def _sentence(run: Summary) -> str:
    found = run["speculation"]
    return (
        f"{called(run['label'])} verified {numbers.count(found['draft_tokens'])} drafts and "
        f"accepted {numbers.percent(found['acceptance_rate'])} of them, "
        f"{numbers.figures(found['mean_acceptance_length'])} tokens a verification; slots held for "
        f"drafts and not used were {numbers.percent(found['draft_slots'])} of the pool."
    )
