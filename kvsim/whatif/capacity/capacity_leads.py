"""The first screen of a capacity answer: each edge with its interval, and recommended commands."""

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
from kvsim.whatif.capacity.fresh import FreshLoad
from kvsim.whatif.capacity.load import rate_key, users_key
from kvsim.whatif.capacity.questions import Question
from kvsim.whatif.findings import CommandText
from kvsim.whatif.whiskers import Whisker, whiskers

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEADS = {
    "rate": "{unit}",
    "num_users": "users",
    "pool": "pool, tokens",
    "max_model_len": "tokens",
}
LOADS = {"rate": "Run it at this rate", "num_users": "Run it with so many users"}


def value_text(answer: CapacityAnswer, question: Question) -> str:
    """The value of an answer with its interval, or how many seeds meet the objectives at any
    value.
    """
    interval = answer.interval
    if interval is None:
        held = sum(edge.bracket.kept is not None for edge in answer.edges)
        if held:
            return f"{held} of {len(answer.edges)} seeds keep them"
        return "none found" if question.name == "pool" else "keeps them at none"
    text = mean_text(interval, whole=bool(question.unit))
    return f"{text} and beyond" if answer.open else text


def tuned_rows(
    tuned: Sequence[tuple[CapacitySubject, Sequence[Tuning]]], name: str
) -> list[Whisker]:
    """One row for each allocator and value that sustains some rate."""
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


def acts(
    question: Question,
    answers: Sequence[CapacityAnswer],
    run: str,
    fresh: FreshLoad | None = None,
) -> list[CommandText]:
    """The recommended next command: a flag of `vllm serve`, or the run at the load that was found.

    fresh: the load of the best allocator that fresh seeds confirm.
    """
    known = [(each, each.interval) for each in answers if each.interval is not None]
    lines, note = [], ""
    if question.name in LOADS and run and known:
        table = answers[0].subject.table
        key = users_key(table) if question.name == "num_users" else rate_key(table)
        value = None if fresh is None else fresh.value
        if value is None:
            value = max(mean.mean for _, mean in known)
            note = "The middle of the seeds: others may break the objectives there."
        text = f"{int(value)}" if question.unit else f"{value:.3g}"
        lines = [f"{run} --set {key}={text}"]
    for answer, mean in known:
        if question.name == "pool" and answer.utilization_to_set is not None:
            share = answer.utilization_to_set
            lines.append(f"--gpu-memory-utilization {share:g}  # {answer.subject.label}")
        elif question.name == "max_model_len":
            lines.append(f"--max-model-len {int(mean.mean)}  # {answer.subject.label}")
    title = LOADS.get(question.name, "Flags of vllm serve")
    return [CommandText(title, note, "\n".join(lines), lead=True)] if lines else []
