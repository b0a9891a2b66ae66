"""Remarks on a result's numbers: requests left out, effects that are not simulated, expected
errors.
"""

from collections.abc import Mapping
from typing import Any

from kvsim.report.names import called, listed
from kvsim.report.numbers import percent
from kvsim.results.result import Result
from kvsim.results.summary import NoWindow, RunSummary
from kvsim.step_time.kernels.expected import (
    ExpectedError,
    expected_error,
    interval_words,
    regime_of,
)


def remarks(result: Result) -> list[str]:
    """The remarks as sentences: first on the requests, then on each run."""
    notes = result.scenario.get("provenance", {}).get("notes", [])
    sentences = [f"Requests: {note}." for note in notes]
    sentences += step_time_remarks(result.scenario, result.runs[0].summary.running_mean)
    if front := result.scenario.get("provenance", {}).get("front_end"):
        sentences.append(
            f"Latencies begin at the client: a front end takes {front['request_ms']:.3g} ms of "
            f"each request, {front['token_ms']:.3g} ms of each token of its prompt and "
            f"{front['client_ms']:.3g} ms for each client."
        )
    sentences += _copies(result)
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


BORROWED = {
    "device": "No served points of this model on this device are at hand: the host's time is that "
    "of other devices",
}


def step_time_remarks(scenario: Mapping[str, Any], running: float | None) -> list[str]:
    """Sentences on the source of the step times and on their expected error.

    running: mean number of running sequences.
    """
    provenance = scenario.get("provenance", {})
    if not (source := provenance.get("step_time")):
        return []
    found = [f"Step times: {source}."]
    expected = _expected(provenance, running)
    if config := scenario.get("speculative_config"):
        found.append(
            f"No measured step with drafts is behind these times: {_drafting(config)}, and no "
            "error is known of them."
        )
        expected = [f"Without drafts: {each[0].lower()}{each[1:]}" for each in expected]
    return found + expected


def _drafting(config: Mapping[str, Any]) -> str:
    """A clause on where the time of drafting comes from."""
    if config.get("draft_us") is not None:
        return "drafting takes the draft_us that is given"
    if config["method"] == "ngram":
        return "to look drafts up takes no time"
    return "the drafter is timed by the roofline"


def _expected(provenance: Mapping[str, Any], running: float | None) -> list[str]:
    """A sentence on the expected error of kernel-based step times at these lengths and this batch
    size.
    """
    served, lengths = provenance.get("served_points"), provenance.get("mean_tokens")
    if not served or lengths is None or not running:
        return []
    if words := interval_words(served):
        return [words]
    if served in BORROWED:
        left_out = expected_error("left_out", served)
        return [
            f"{BORROWED[served]}. With the served ones left out of the fit so, times per output "
            f"token are off by {_sizes(left_out)} (docs/step-times.md)."
        ]
    regime = regime_of(lengths["prompt"], lengths["output"], running)
    first = expected_error("ttft", regime) if provenance.get("front_end") else None
    beside = f", and times to the first token by {_sizes(first)}" if first else ""
    if error := expected_error("tpot", regime):
        return [
            f"On measured points that no constant was fitted on ({regime}), times per output token "
            f"of such step times are off by {_sizes(error)}{beside} (reports/points)."
        ]
    return []


def _sizes(error: ExpectedError | None) -> str:
    assert error is not None
    return f"{percent(error.median)} in the median and {percent(error.mean)} in the mean"


def _copies(result: Result) -> list[str]:
    """A remark that only one data-parallel rank was simulated, if that is so."""
    scenario = result.scenario
    copies = scenario.get("model", {}).get("data_parallel_size", 1)
    if copies == 1 or scenario.get("fleet") or scenario.get("disaggregation"):
        return []
    return [
        f"One of {copies} data-parallel copies was simulated: the requests are those of this copy. "
        f"[fleet] with replicas = {copies} simulates all."
    ]


def _unmeasured(run: RunSummary, asked: bool) -> str:
    """Why a run that served requests has no measurement window; empty if it has one.

    asked: whether the scenario sets the ends of the window.
    """
    if not isinstance(run.window, NoWindow) or not run.requests.finished:
        return ""
    what = "The window that was given was not measured" if asked else "No steady part was found"
    return f"{what}: {run.window.reason}."
