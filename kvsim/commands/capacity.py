"""`kvsim capacity`: what load, pool or setting just keeps the objectives."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.commands.arguments import AsJson, Changes, Jobs, ScenarioName

if TYPE_CHECKING:
    from kvsim.whatif.capacity.answers import Answer, GoodputPoint, Tuning
    from kvsim.whatif.page import Cells


def capacity(
    scenario: ScenarioName,
    slo: Annotated[
        list[str] | None,
        typer.Option(metavar="NUMBER=LIMIT", help="An objective: ttft_s.p99=2; may be repeated."),
    ] = None,
    find: Annotated[
        str,
        typer.Option(help="rate, pool, max_model_len, max_num_seqs or max_num_batched_tokens."),
    ] = "rate",
    rate: Annotated[
        list[float] | None,
        typer.Option(
            metavar="PER_S",
            help="A rate: how many replicas it takes, or at which to look; may be repeated.",
        ),
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(metavar="1,2,4", help="What a setting may be (default: powers of two)."),
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, metavar="SEEDS", help="Seeds, each with a bisection of its own.")
    ] = 3,
    tolerance: Annotated[
        float, typer.Option(min=1e-6, max=1.0, help="Width of a bracket, as a share of its value.")
    ] = 0.02,
    jobs: Jobs = None,
    set_: Changes = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write capacity.json and capacity.html.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the edge at which a scenario just keeps its objectives, allocator by allocator.

    Each seed is bisected on its own requests; the interval is over the seeds. Besides the
    objectives given, no request may be refused, and the queue may not only grow.
    """
    from rich.console import Console

    from kvsim.commands.tables import out as stdout
    from kvsim.commands.whatif_tables import printed
    from kvsim.plumbing.errors import InputError
    from kvsim.plumbing.writing import check_writable, replace_files, text_writer
    from kvsim.scenario import load_tables
    from kvsim.whatif.backends import BACKENDS
    from kvsim.whatif.capacity import tables, words
    from kvsim.whatif.capacity.capacity import Capacity
    from kvsim.whatif.capacity.load import unit
    from kvsim.whatif.capacity.objectives import complete, parse_objective
    from kvsim.whatif.capacity.page import make_page
    from kvsim.whatif.capacity.questions import QUESTIONS, TUNED, question_named
    from kvsim.whatif.runner import TaskRunner

    if not slo:
        raise InputError("required", where="--slo", remedy="give an objective: --slo ttft_s.p99=2")
    if any(not each > 0 for each in rate or ()):
        raise InputError("a rate is above 0", where="--rate", value=rate)
    if values is not None and find not in TUNED:
        raise InputError(
            "belongs to max_num_seqs and max_num_batched_tokens", where="--values", value=values
        )
    if rate and find in TUNED:
        raise InputError(f"--find {find} looks for the highest rate itself", where="--rate")
    question = QUESTIONS["rate"] if find in TUNED else question_named(find)
    objectives = complete([parse_objective(text) for text in slo])
    table, folder = load_tables(scenario, set_ or [])
    if out is not None:
        check_writable(out)
    with Console(stderr=True).status("") as status:
        runner = TaskRunner(
            BACKENDS.get("processes")(jobs=jobs),
            lambda runs: status.update(f"{runs} runs"),
        )
        asked = Capacity(table, folder, objectives, runner, repeat=repeat, tolerance=tolerance)
        noun = unit(table)
        cells: list[Cells] = []
        said: list[str] = []
        answer: dict[str, Any] = {"objectives": [str(each) for each in objectives]}
        curves = []
        if find in TUNED:
            chosen = _whole_numbers(values) or TUNED[find]
            tuned = asked.tune(f"scheduler.{find}", chosen)
            answer["tuned"] = [_tuned(subject.label, found) for subject, found in tuned]
            cells += [
                tables.tuning_table(f"scheduler.{find}", subject.label, found, noun)
                for subject, found in tuned
            ]
        else:
            asks_rate = question.name == "rate"
            at: list[float | None] = [*rate] if rate and not asks_rate else [None]
            answers = asked.find(question, at)
            answer["answers"] = [_answer(each) for each in answers]
            if question.name == "pool":
                most = asked.with_any_pool(answers)
                said = [
                    words.pool_sentence(each, objectives, most.get(each.subject.label), noun)
                    for each in answers
                ]
            elif asks_rate and (sentence := words.rate_sentence(answers, noun)) is not None:
                said = [sentence]
            said += words.notes_on(answers)
            cells.append(tables.answers_table(question, answers, objectives, noun))
            if asks_rate and rate:
                replicas = [(each, asked.replicas(each, rate)) for each in answers]
                cells.append(tables.replicas_table(replicas, noun))
                answer["replicas"] = [
                    {"label": each.subject.label, **one._asdict()}
                    for each, found in replicas
                    for one in found
                ]
            if asks_rate and (out is not None or as_json):
                curves = [(each, asked.goodput(each)) for each in answers]
                answer["goodput"] = [_curve(each, shares) for each, shares in curves]
        answer |= {"sentences": said, "runs": runner.num_runs}
    if out is not None:
        facts = [("objectives", ", ".join(map(str, objectives))), ("runs", str(runner.num_runs))]
        title = cells[0].title
        html = make_page(title, facts, said, cells, curves, table, noun)
        text = json.dumps(answer, indent=2) + "\n"
        files = {"capacity.json": text_writer(text), "capacity.html": text_writer(html)}
        replace_files(out, files)
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    console = stdout()
    for each in cells:
        console.print(printed(each))
        console.print(each.note, markup=False, highlight=False)
        console.print()
    for line in said:
        console.print(line, markup=False, highlight=False)
    if out is not None:
        typer.echo(str(out / "capacity.html"))


def _whole_numbers(text: str | None) -> tuple[int, ...]:
    from kvsim.plumbing.errors import InputError

    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise InputError("not whole numbers above 0", where="--values", value=text)
    return tuple(dict.fromkeys(map(int, parts)))


def _answer(answer: "Answer") -> dict[str, Any]:
    interval = answer.interval
    return {
        "label": answer.subject.label,
        "allocator": answer.subject.kind,
        "rate_per_s": answer.rate_per_s,
        "mean": None if interval is None else interval.mean,
        "half_width": None if interval is None else interval.half_width,
        "open": answer.open,
        "gpu_memory_utilization": answer.utilization,
        "seeds": [
            {"seed": edge.seed, "kept": edge.bracket.kept, "lost": edge.bracket.lost}
            for edge in answer.edges
        ],
    }


def _tuned(label: str, tunings: "Sequence[Tuning]") -> dict[str, Any]:
    return {
        "label": label,
        "values": [
            {
                "value": tuning.value,
                "behind": tuning.behind,
                **({} if tuning.answer is None else {"rate": _answer(tuning.answer)}),
            }
            for tuning in tunings
        ],
    }


def _curve(answer: "Answer", shares: "Sequence[GoodputPoint]") -> dict[str, Any]:
    return {
        "label": answer.subject.label,
        "points": [
            {
                "rate_per_s": share.rate_per_s,
                "within": share.within.mean,
                "half_width": share.within.half_width,
                "saturated_seeds": share.saturated,
            }
            for share in shares
        ],
    }
