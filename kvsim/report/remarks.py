"""Remarks beside the numbers: requests that were left out, and what the numbers do not hold."""

from kvsim.report.names import called, listed
from kvsim.results.result import Result
from kvsim.results.summary import NoWindow, RunSummary


def remarks(result: Result) -> list[str]:
    """The remarks as sentences: on the requests, then on each run."""
    notes = result.scenario.get("provenance", {}).get("notes", [])
    sentences = [f"Requests: {note}." for note in notes]
    asked = bool(result.scenario.get("window"))
    texts: dict[str, list[str]] = {}
    for run in result.runs:
        for note in run.summary.notes or ():
            if note.about == "saturated":
                continue  # the words themselves say so
            texts.setdefault(note.text, []).append(called(run.label))
        unmeasured = _unmeasured(run.summary, asked)
        if unmeasured:
            texts.setdefault(unmeasured, []).append(called(run.label))
    everyone = len(result.runs)
    for text, labels in texts.items():
        who = f"{listed(labels)}: " if everyone > 1 and len(labels) < everyone else ""
        sentences.append(f"{who}{text}")
    return sentences


def _unmeasured(run: RunSummary, asked: bool) -> str:
    """The reason why a run that served requests has no window; empty where it has one.

    asked: whether the scenario gives the edges of the window.
    """
    if not isinstance(run.window, NoWindow) or not run.requests.finished:
        return ""
    what = "The window that was given was not measured" if asked else "No steady part was found"
    return f"{what}: {run.window.reason}."
