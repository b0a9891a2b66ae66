"""The answers as tables of text, for the terminal and the page."""

from collections.abc import Callable, Sequence
from functools import partial

from kvsim.report import numbers
from kvsim.whatif.capacity.answers import Answer, Edge, Replicas, Tuning
from kvsim.whatif.capacity.objectives import Objective, broken
from kvsim.whatif.capacity.questions import Question
from kvsim.whatif.intervals import Interval
from kvsim.whatif.page import Cells


def answers_table(
    question: Question, answers: Sequence[Answer], objectives: Sequence[Objective], unit: str
) -> Cells:
    """One row an allocator and rate: the answer, and what the runs on both sides of it say."""
    at_rates = any(answer.rate_per_s is not None for answer in answers)
    pool = question.name == "pool"
    heads = (
        "",
        *(["at"] if at_rates else []),
        _HEADS[question.name].format(unit=unit),
        *(["utilization"] if pool else []),
        "just inside",
        "just outside",
    )
    value = numbers.count if question.unit == "tokens" else partial(numbers.figures, digits=4)
    rows = []
    for answer in answers:
        rate = "" if answer.rate_per_s is None else f"{numbers.figures(answer.rate_per_s)} {unit}"
        share = "does not fit" if answer.utilization is None else f"{answer.utilization:.3f}"
        share = numbers.NOTHING if answer.interval is None else share
        first = answer.edges[0]
        rows.append(
            (
                answer.subject.label,
                *([rate] if at_rates else []),
                value_text(answer, question),
                *([share] if pool else []),
                _inside(first, objectives, value),
                _outside(first, objectives, value),
            )
        )
    note = (
        f"Objectives: {', '.join(map(str, objectives))}, and a queue that does not only grow. "
        f"Mean over {numbers.plural(len(answers[0].edges), 'seed')} ± half of the 95 % interval; "
        "the two runs shown are those of the first seed."
    )
    return Cells(_TITLES[question.name], note, heads, tuple(rows))


def value_text(answer: Answer, question: Question) -> str:
    """The answer's value as people read it."""
    interval = answer.interval
    if interval is None:
        held = sum(edge.bracket.kept is not None for edge in answer.edges)
        if held:
            return f"{held} of {len(answer.edges)} seeds keep them"
        return "none found" if question.name == "pool" else "keeps them at none"
    text = with_width(interval, whole=question.unit == "tokens")
    return f"{text} and beyond" if answer.open else text


def tuning_table(key: str, label: str, tunings: Sequence[Tuning], unit: str) -> Cells:
    """The rate each value of a setting holds out under one allocator."""
    rows = tuple(
        (
            f"{tuning.value:,}",
            numbers.NOTHING
            if tuning.answer is None or tuning.answer.interval is None
            else with_width(tuning.answer.interval),
            tuning.behind,
        )
        for tuning in tunings
    )
    note = "Rates are compared with the best one's on the same seeds, pair by pair."
    heads = (key.rpartition(".")[2], f"highest rate, {unit}", "against the best")
    return Cells(f"{label}: {key}", note, heads, rows)


def replicas_table(found: Sequence[tuple[Answer, Sequence[Replicas]]], unit: str) -> Cells:
    """How many replicas each rate takes, allocator by allocator."""
    rows = tuple(
        (
            answer.subject.label,
            f"{numbers.figures(each.rate_per_s)}",
            str(each.num),
            str(each.safe),
            f"{each.kept} of {each.seeds}",
            numbers.NOTHING
            if each.kept_with_one_less is None
            else f"{each.kept_with_one_less} of {each.seeds}",
        )
        for answer, replicas in found
        for each in replicas
    )
    note = (
        "Requests are dealt out at random. By the mean capacity, and (to be safe) by the lowest of "
        "the seeds; then in how many seeds a replica keeps the objectives at its share of the "
        "rate by the mean, and with one replica less."
    )
    heads = ("", unit, "replicas", "to be safe", "kept", "with one less")
    return Cells("Replicas", note, heads, rows)


_TITLES = {
    "rate": "The highest rate that keeps the objectives",
    "pool": "The smallest pool that keeps the objectives",
    "max_model_len": "The longest max_model_len that keeps the objectives",
}
_HEADS = {"rate": "{unit}", "pool": "pool, tokens", "max_model_len": "tokens"}


def with_width(interval: Interval, *, whole: bool = False) -> str:
    """`6.1 ± 0.3`."""
    form = numbers.count if whole else numbers.number
    width = interval.half_width
    return form(interval.mean) + (f" ± {form(width)}" if width else "")


def _inside(edge: Edge, objectives: Sequence[Objective], value: Callable[[float], str]) -> str:
    if edge.inside is None or edge.bracket.kept is None:
        return numbers.NOTHING
    row = edge.inside
    said = [
        f"{each.name} {float(row[each.name]):.4g}"
        for each in objectives
        if row.get(each.name) is not None and each.name != "requests.rejected"
    ]
    return f"{value(edge.bracket.kept)}: {', '.join(said)}"


def _outside(edge: Edge, objectives: Sequence[Objective], value: Callable[[float], str]) -> str:
    if edge.bracket.lost is None:
        return numbers.NOTHING
    why = ["cannot be run"] if edge.outside is None else broken(edge.outside, objectives)
    return f"{value(edge.bracket.lost)}: {', '.join(why)}"
