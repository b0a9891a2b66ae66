"""The findings of a capacity search: the edge of each allocator, recommendations, and goodput."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kvsim.report import numbers
from kvsim.whatif.capacity.answers import (
    BEST,
    CapacityAnswer,
    Edge,
    GoodputPoint,
    Tuning,
    mean_text,
)
from kvsim.whatif.capacity.capacity import Capacity
from kvsim.whatif.capacity.capacity_leads import (
    HEADS,
    LOADS,
    acts,
    edges_figure,
    tuned_rows,
    value_text,
)
from kvsim.whatif.capacity.capacity_sentences import (
    fresh_sentence,
    notes_on,
    pool_sentence,
    rate_sentence,
)
from kvsim.whatif.capacity.fresh import FreshLoad
from kvsim.whatif.capacity.goodput_figure import goodput_figure
from kvsim.whatif.capacity.objectives import Objective, broken
from kvsim.whatif.capacity.questions import TUNED, Question
from kvsim.whatif.capacity.replicas_table import (
    replicas_data,
    replicas_sentences,
    replicas_table,
)
from kvsim.whatif.capacity.short_streams import short_sentences
from kvsim.whatif.findings import (
    CommandText,
    Findings,
    FindingsColumn,
    FindingsFigure,
    FindingsTable,
    Section,
)
from kvsim.whatif.whiskers import whiskers

_MOST_SENTENCES = 4  # of a verdict
_AT = {True: "this rate", False: "the rate it was looked for at"}  # by whether a load is found
_TITLES = {
    "rate": "The highest rate that keeps the objectives",
    "num_users": "The most users that keep the objectives",
    "pool": "The smallest pool that keeps the objectives",
    "max_model_len": "The longest max_model_len that keeps the objectives",
}


def tuning_findings(
    capacity: Capacity, name: str, values: Sequence[int], run: str = ""
) -> Findings:
    """The highest rate at each value of a setting. values: empty for the setting's default values.
    run: the command that runs the scenario.
    """
    tuned = capacity.tune(name, values or TUNED[name].values(capacity.table))
    rate = f"highest rate, {capacity.unit}"
    tables = [
        FindingsTable(
            f"{subject.label}: {TUNED[name].key}",
            "Rates are compared with the best one's on the same seeds, pair by pair.",
            [FindingsColumn(name, numbers.count), rate, "against the best"],
            [(each.value, mean_text(each.answer.interval if each.answer else None), each.behind)
             for each in tunings],
        )
        for subject, tunings in tuned
    ]  # fmt: skip
    data = [
        {"label": subject.label, "values": [_tuning_data(each) for each in tunings]}
        for subject, tunings in tuned
    ]
    words, commands, tops = [], [], []
    for subject, tunings in tuned:
        found = [(each, each.answer.interval) for each in tunings if each.answer is not None]
        known = [(interval.mean, each) for each, interval in found if interval is not None]
        if known:
            best = [each for _, each in known if each.behind == BEST]
            top = (best or [max(known, key=lambda pair: pair[0])[1]])[0]
            rate_text = mean_text(top.answer.interval if top.answer else None)
            words.append(
                f"{subject.label}: the highest rate is {rate_text} {capacity.unit}, with "
                f"{name} = {top.value:,}."
            )
            commands.append(f"{run} --set {TUNED[name].key}={top.value}")
            assert top.answer is not None  # it has an interval
            tops.append(capacity.short(capacity.load, top.answer))
    words += short_sentences(tops)
    lead: list[Section] = [
        FindingsFigure(
            f"The highest rate by {name}",
            "A dot is the mean over the seeds, its line the 95 % interval.",
            partial(whiskers, tuned_rows(tuned, name), rate),
            lead=True,
        ),
        *([CommandText("Run it", "", "\n".join(commands), lead=True)] if run and commands else []),
    ]
    num_verdict = max(1, min(_MOST_SENTENCES, len(words)))
    title = f"Which {name} holds the highest rate within the objectives?"
    return _findings(capacity, [*tables, *lead], words, {"tuned": data}, num_verdict, title)


def edge_findings(
    capacity: Capacity,
    question: Question,
    rates: Sequence[float],
    *,
    goodput: bool,
    run: str = "",
) -> Findings:
    """The edge of every allocator. rates: requests a second at which a pool or length is searched,
    or for which replicas are counted. goodput: whether to simulate goodput curves too. run: the
    command that runs the scenario.
    """
    asks_rate = question.name == "rate"
    asks_load = question.name in LOADS
    answers = capacity.find(question, [None] if asks_rate or not rates else rates)
    top = _best(answers) if asks_load else None
    fresh = None if top is None else capacity.fresh(question, top)
    data: dict[str, Any] = {
        "answers": [
            _answer_data(each) | ({"fresh": _fresh_data(fresh)} if each is top else {})
            for each in answers
        ]
    }
    sentences = []
    if question.name == "pool":
        most = capacity.with_any_pool(answers)
        sentences = [
            pool_sentence(each, capacity.objectives, most.get(each.subject.label), capacity.unit)
            for each in answers
        ]
    elif asks_load and (sentence := rate_sentence(answers, capacity.unit)) is not None:
        assert top is not None  # some allocator keeps the objectives
        label, seeds = top.subject.label, len(top.edges)
        sentences = [sentence, fresh_sentence(label, fresh, capacity.unit, seeds)]
    elif not asks_load:
        sentences = [
            f"{each.subject.label}: {question.name} = {value_text(each, question)} keeps the "
            "objectives." for each in answers if each.interval is not None
        ]  # fmt: skip
    if not any(each.interval for each in answers) and question.name != "pool":
        sentences = [f"No {question.name} keeps the objectives under any allocator."]
    num_verdict = max(1, min(_MOST_SENTENCES, len(sentences)))
    counted = [(each, capacity.replicas(each, rates)) for each in answers] if asks_rate else []
    doubts = short_sentences([capacity.short(question, each) for each in answers], _AT[asks_load])
    doubts += replicas_sentences(counted, capacity.unit)
    sentences[num_verdict:num_verdict] = doubts
    num_verdict += len(doubts)
    sentences += notes_on(answers)
    sections: list[Section] = [
        _answers_table(question, answers, capacity),
        FindingsFigure(
            f"{_TITLES[question.name].removesuffix(' that keeps the objectives')}, by allocator",
            "A dot is the mean over the seeds, its line the 95 % interval.",
            partial(edges_figure, question, answers, capacity.unit),
            lead=True,
        ),
        *acts(question, answers, run, fresh),
    ]
    if asks_rate and rates:
        sections.append(replicas_table(counted, capacity.unit))
        data["replicas"] = replicas_data(counted)
    if asks_rate and goodput:
        curves = [(each, capacity.goodput(each)) for each in answers]
        data["goodput"] = [
            {"label": each.subject.label, "points": [_point_data(point) for point in points]}
            for each, points in curves
        ]
        if drawn := [curve for curve in curves if curve[1]]:
            note = (
                "Requests well served a second, each within every limit on its latencies, against "
                "the rate at which they come. The thin diagonal is all of them; a cross marks "
                "a rate at which a seed's queue only grew."
            )
            draw = partial(goodput_figure, drawn, capacity.unit)
            sections.append(FindingsFigure("Goodput", note, draw))
    return _findings(capacity, sections, sentences, data, num_verdict)


def _findings(
    capacity: Capacity,
    sections: Sequence[Section],
    sentences: list[str],
    data: dict[str, Any],
    num_verdict: int,
    title: str = "",
) -> Findings:
    objectives, runs = [str(each) for each in capacity.objectives], capacity.runner.num_runs
    return Findings(
        title or sections[0].title,
        [("objectives", ", ".join(objectives)), ("runs", str(runs))],
        sentences,
        sections,
        capacity.table,
        {"objectives": objectives, **data, "sentences": sentences, "runs": runs},
        num_verdict=num_verdict,
    )


def _answers_table(
    question: Question, answers: Sequence[CapacityAnswer], capacity: Capacity
) -> FindingsTable:
    """One row for each allocator and rate: the edge, and the first seed's runs on both sides of
    it.
    """
    objectives, unit = capacity.objectives, capacity.unit
    at_rates = any(answer.rate_per_s is not None for answer in answers)
    pool = question.name == "pool"
    value = numbers.count if question.unit else partial(numbers.figures, digits=4)
    rows = []
    for answer in answers:
        rate = "" if answer.rate_per_s is None else f"{numbers.figures(answer.rate_per_s)} {unit}"
        given = answer.utilization_to_set
        share = "does not fit" if given is None else f"{given:.3f}"
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
    return FindingsTable(
        _TITLES[question.name],
        f"Objectives: {', '.join(map(str, objectives))}, and a queue that does not only grow. "
        f"Mean over {numbers.plural(len(answers[0].edges), 'seed')} ± half of the 95 % interval; "
        "the two runs shown are those of the first seed.",
        (
            "",
            *(["at"] if at_rates else []),
            HEADS[question.name].format(unit=unit),
            *(["utilization"] if pool else []),
            "just inside",
            "just outside",
        ),
        rows,
    )


def _inside(edge: Edge, objectives: Sequence[Objective], value: Callable[[float], str]) -> str:
    if edge.inside is None or edge.bracket.kept is None:
        return numbers.NOTHING
    row = edge.inside
    texts = [
        f"{each.name} {float(row[each.name]):.4g}"
        for each in objectives
        if row.get(each.name) is not None and each.name != "requests.rejected"
    ]
    return f"{value(edge.bracket.kept)}: {', '.join(texts)}"


def _outside(edge: Edge, objectives: Sequence[Objective], value: Callable[[float], str]) -> str:
    if edge.bracket.lost is None:
        return numbers.NOTHING
    why = ["cannot be run"] if edge.outside is None else broken(edge.outside, objectives)
    return f"{value(edge.bracket.lost)}: {', '.join(why)}"


def _answer_data(answer: CapacityAnswer) -> dict[str, Any]:
    interval = answer.interval
    return {
        "label": answer.subject.label,
        "allocator": answer.subject.kind,
        "rate_per_s": answer.rate_per_s,
        "mean": interval and interval.mean,
        "half_width": interval and interval.half_width,
        "open": answer.open,
        "gpu_memory_utilization": answer.utilization,
        "seeds": [{"seed": edge.seed, **edge.bracket._asdict()} for edge in answer.edges],
    }


def _best(answers: Sequence[CapacityAnswer]) -> CapacityAnswer | None:
    """The allocator with the highest load; None if none meets the objectives."""
    known = [(each.interval.mean, at) for at, each in enumerate(answers) if each.interval]
    return answers[max(known, key=lambda pair: (pair[0], -pair[1]))[1]] if known else None


def _fresh_data(fresh: FreshLoad | None) -> dict[str, Any] | None:
    return None if fresh is None else fresh._asdict()


def _tuning_data(tuning: Tuning) -> dict[str, Any]:
    rate = {} if tuning.answer is None else {"rate": _answer_data(tuning.answer)}
    return {"value": tuning.value, "behind": tuning.behind, **rate}


def _point_data(point: GoodputPoint) -> dict[str, Any]:
    return {
        "rate_per_s": point.rate_per_s,
        "within": point.within.mean,
        "half_width": point.within.half_width,
        "saturated_seeds": point.saturated,
    }
