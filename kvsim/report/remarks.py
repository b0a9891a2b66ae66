"""What a reader must know beside the numbers: what was left out, what they do not hold."""

from kvsim.report.names import called, listed
from kvsim.results.result import Result
from kvsim.results.summary import NoWindow, RunSummary


def remarks(result: Result) -> list[str]:
    """What a reader must know beside the numbers: of the requests, then of each run."""
    notes = result.scenario.get("provenance", {}).get("notes", [])
    said = [f"Requests: {note}." for note in notes]
    given = bool(result.scenario.get("window"))
    texts: dict[str, list[str]] = {}
    for run in result.runs:
        for note in run.summary.notes or ():
            if note.about == "saturated":
                continue  # the words themselves say so
            texts.setdefault(note.text, []).append(called(run.label))
        unmeasured = _unmeasured(run.summary, given)
        if unmeasured:
            texts.setdefault(unmeasured, []).append(called(run.label))
    everyone = len(result.runs)
    for text, labels in texts.items():
        who = f"{listed(labels)}: " if everyone > 1 and len(labels) < everyone else ""
        said.append(f"{who}{text}")
    return said


def _unmeasured(run: RunSummary, given: bool) -> str:
    """Why no part of a run that served something stands beside the whole; nothing where one does.

    given: whether the part was asked for by its edges.
    """
    if not isinstance(run.window, NoWindow) or not run.requests.finished:
        return ""
    what = "The window that was given was not measured" if given else "No steady part was found"
    return f"{what}: {run.window.reason}."
