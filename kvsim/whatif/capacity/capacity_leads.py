"""The first screen of a capacity: each edge with its interval, and what to act on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvsim.report import numbers
from kvsim.whatif.capacity.answers import (
    BEST,
    CapacityAnswer,
    CapacitySubject,
    Tuning,
    mean_text,
)
from kvsim.whatif.capacity.load import rate_key
from kvsim.whatif.capacity.questions import Question
from kvsim.whatif.findings import CommandText
from kvsim.whatif.whiskers import Whisker, whiskers

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEADS = {"rate": "{unit}", "pool": "pool, tokens", "max_model_len": "tokens"}


def value_text(answer: CapacityAnswer, question: Question) -> str:
    """The value of an answer with its interval, or how many seeds keep the objectives at any."""
    interval = answer.interval
    if interval is None:
        held = sum(edge.bracket.kept is not None for edge in answer.edges)
        if held:
            return f"{held} of {len(answer.edges)} seeds keep them"
        return "none found" if question.name == "pool" else "keeps them at none"
    text = mean_text(interval, whole=question.unit == "tokens")
    return f"{text} and beyond" if answer.open else text


def tuned_rows(
    tuned: Sequence[tuple[CapacitySubject, Sequence[Tuning]]], name: str
) -> list[Whisker]:
    """A row an allocator and value that holds out a rate."""
    rows = []
    for subject, tunings in tuned:
        for each in tunings:
            mean = None if each.answer is None else each.answer.interval
            if mean is not None:
                label = f"{subject.label}, {name} = {each.value:,}"
                best = each.behind == BEST
                rows.append(
                    Whisker(label, mean.mean, max(mean.low, 0.0), mean.high, mean_text(mean), best)
                )
    return rows


def edges_figure(
    question: Question, answers: Sequence[CapacityAnswer], unit: str
) -> "go.Figure | None":
    """The edge of each allocator (and rate), with its interval."""
    rows = []
    known = [(each, each.interval) for each in answers if each.interval is not None]
    for answer, mean in known:
        rate = answer.rate_per_s
        at = "" if rate is None else f" at {numbers.figures(rate)} {unit}"
        text = f"{value_text(answer, question)} {question.unit or unit}"
        rivals = [one.mean for other, one in known if other.rate_per_s == rate]
        best = mean.mean == (min if question.name == "pool" else max)(rivals)
        rows.append(
            Whisker(answer.subject.label + at, mean.mean, max(mean.low, 0.0), mean.high, text, best)
        )
    return whiskers(rows, HEADS[question.name].format(unit=unit))


def acts(question: Question, answers: Sequence[CapacityAnswer], run: str) -> list[CommandText]:
    """What to act on: a flag of `vllm serve`, or the run at the rate that was found."""
    known = [(each, each.interval) for each in answers if each.interval is not None]
    lines = []
    if question.name == "rate" and run and known:
        top = max(known, key=lambda pair: pair[1].mean)[1]
        lines = [f"{run} --set {rate_key(answers[0].subject.table)}={numbers.figures(top.mean)}"]
    for answer, mean in known:
        if question.name == "pool" and answer.utilization_to_set is not None:
            share = answer.utilization_to_set
            lines.append(f"--gpu-memory-utilization {share:g}  # {answer.subject.label}")
        elif question.name == "max_model_len":
            lines.append(f"--max-model-len {int(mean.mean)}  # {answer.subject.label}")
    title = "Run it at this rate" if question.name == "rate" else "Flags of vllm serve"
    return [CommandText(title, "", "\n".join(lines), lead=True)] if lines else []
