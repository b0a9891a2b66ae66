"""The answer to a scenario's question, computed from the numbers of its runs."""

from collections.abc import Iterator

from kvsim.report import numbers
from kvsim.report.measures import MEASURES
from kvsim.report.names import called
from kvsim.report.transfers import served
from kvsim.results.departures import Departures, within
from kvsim.results.question import QuestionOptions
from kvsim.results.result import Result, Run
from kvsim.results.summary import RunSummary

_LATENCY_WORDS = {
    "ttft": "had a first token within {}",
    "tpot": "took at most {} per output token on average",
    "e2e": "were done within {}",
    "queue": "were scheduled within {}",
}


def answer(result: Result) -> str | None:
    """The scenario's question, and an answer with a clause per run.

    None if the scenario has no question, or for a fleet, which spreads its requests over several
    runs.
    """
    table = result.scenario.get("question")
    if table is None or result.fleets:
        return None
    question = QuestionOptions.parse(table, "question")
    kept = {run.label for run in served([run.summary for run in result.runs])}
    runs = [run for run in result.runs if run.label in kept]
    parts = list(_shares(question, runs) if question.within_s else _values(question, runs))
    return f"{question.text} {numbers.listed(parts)}."


def _shares(question: QuestionOptions, runs: list[Run]) -> Iterator[str]:
    assert question.within_s is not None
    words = _LATENCY_WORDS[question.measure].format(numbers.seconds(question.within_s))
    for at, run in enumerate(runs):
        share = numbers.percent(_share(run, question.measure, question.within_s))
        first = f" of the requests {words}" if not at else ""
        yield f"{share}{first} under {called(run.label)}"


def _share(run: Run, measure: str, limit_s: float) -> float | None:
    """Share of all submitted requests that finished with the measure within limit_s; a refused
    request counts as late.
    """
    rows = run.requests[run.requests.status == "finished"]
    done = Departures(*(rows[name].to_numpy() for name in Departures._fields))
    everyone = len(run.requests)
    return within(done, {f"{measure}_s": limit_s}) / everyone if everyone else None


def _values(question: QuestionOptions, runs: list[Run]) -> Iterator[str]:
    for at, run in enumerate(runs):
        title, text = _value(question.measure, run.summary)
        first = f"{title}: " if not at else ""
        known = "none" if text == numbers.NOTHING else text
        yield f"{first}{known} under {called(run.label)}"


def _value(measure: str, run: RunSummary) -> tuple[str, str]:
    """Title and formatted value of a measure of one run."""
    if measure == "used":
        return "Share of the pool that held tokens", numbers.percent(run.memory.time_mean.used)
    if measure == "queue":
        waited = None if run.queue_s is None else run.queue_s.p50
        return "Wait before the first step, median", numbers.seconds(waited)
    found = MEASURES.get(measure) or MEASURES[f"{measure}_p50"]
    return found.title, found.text(run)
