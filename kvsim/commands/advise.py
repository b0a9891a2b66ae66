"""`kvsim advise`: what other settings would buy, as flags of `vllm serve`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.commands.arguments import AsJson, Changes, Jobs, ScenarioName

if TYPE_CHECKING:
    from kvsim.whatif.advice.baseline import Baseline, LoadReading
    from kvsim.whatif.advice.change import Advice
    from kvsim.whatif.intervals import Ratio


def advise(
    scenario: ScenarioName,
    goal: Annotated[
        str,
        typer.Option(metavar="NUMBER", help="What shall be better: ttft_s.p99, requests_per_s ..."),
    ] = "e2e_s.mean",
    repeat: Annotated[
        int,
        typer.Option(min=2, metavar="SEEDS", help="Seeds to search on, to test on and to tell by."),
    ] = 5,
    jobs: Jobs = None,
    set_: Changes = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write advice.json and advice.html.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Try what a user of vLLM can change, one by one and together, and rank what it buys.

    The best setting found is run again on seeds (or stretches of a trace) that the search has not
    seen, and printed as the flags of vllm serve beside those of today.
    """
    from rich.console import Console

    from kvsim.commands.tables import out as stdout
    from kvsim.commands.whatif_tables import printed
    from kvsim.plumbing.writing import check_writable, replace_files, text_writer
    from kvsim.scenario import load_tables
    from kvsim.whatif.advice import page, serve
    from kvsim.whatif.advice.advice import Advisor
    from kvsim.whatif.advice.change import goal_named
    from kvsim.whatif.backends import BACKENDS
    from kvsim.whatif.runner import TaskRunner

    chosen = goal_named(goal)
    table, folder = load_tables(scenario, set_ or [])
    if out is not None:
        check_writable(out)
    with Console(stderr=True).status("") as status:
        runner = TaskRunner(
            BACKENDS.get("processes")(jobs=jobs),
            lambda runs: status.update(f"{runs} runs"),
        )
        advice = Advisor(table, folder, chosen, runner, repeat=repeat).advise()
    today, best = (serve.command(each, folder) for each in (advice.today, advice.best))
    answer = _answer(advice, today, best, runner.num_runs)
    if out is not None:
        html, text = page.make_page(advice, today, best), json.dumps(answer, indent=2) + "\n"
        files = {"advice.json": text_writer(text), "advice.html": text_writer(html)}
        replace_files(out, files)
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
        return
    console = stdout()
    cells = page.changes_table(advice)
    console.print(printed(cells))
    console.print(cells.note, markup=False, highlight=False)
    console.print()
    for line in page.sentences(advice):
        console.print(line, markup=False, highlight=False)
    typer.echo(f"\nToday:\n{today}")
    if advice.reported is not None:
        typer.echo(f"\nThe best setting found:\n{best}")
    if out is not None:
        typer.echo(str(out / "advice.html"))


def _standing(standing: "Baseline") -> dict[str, Any]:
    def load(of: "LoadReading") -> dict[str, Any]:
        return {**of._asdict(), "waits": of.waits._asdict(), "binds": of.binds}

    room, pool, twice = standing.headroom, standing.pool, standing.twice
    told = pool.told if pool is not None else None
    return {
        "load": load(standing.load),
        "again": load(standing.again),
        "twice_the_pool": None if twice is None else twice._asdict(),
        "headroom": None
        if room is None
        else {**room._asdict(), "beyond": None if room.beyond is None else load(room.beyond)},
        "least_pool": None
        if pool is None
        else {**pool._asdict(), "told": None if told is None else told._asdict()},
    }


def _answer(advice: "Advice", today: str, best: str, runs: int) -> dict[str, Any]:
    def ratio(of: "Ratio | None") -> dict[str, float] | None:
        return None if of is None else of._asdict()

    return {
        "label": advice.label,
        "goal": advice.goal.name,
        "today": advice.base,
        "saturated_runs": advice.saturated,
        "changes": [
            {
                "key": each.knob.key,
                "before": each.before,
                "value": each.value,
                "gain": each.gain,
                "searched": ratio(each.ratio),
                "tested": ratio(each.tested),
                "also": {name: ratio(of) for name, of in each.also.items()},
                "verdict": each.verdict,
            }
            for each in advice.changes
        ],
        "not_tried": dict(advice.not_tried),
        "standing": _standing(advice.standing),
        "notes": advice.notes,
        "taken": {each.knob.key: each.value for each in advice.taken},
        "reported": ratio(advice.reported),
        "also": {name: ratio(of) for name, of in advice.reported_also.items()},
        "replicates": {
            name: [each.name for each in getattr(advice.replicates, name)]
            for name in ("search", "test", "report")
        },
        "vllm_serve": {"today": today, "best": best},
        "runs": runs,
    }
