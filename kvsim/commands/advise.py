"""`kvsim advise`: what other settings would buy, as flags of `vllm serve`."""

from pathlib import Path
from typing import Annotated

import typer

from kvsim.commands.arguments import AsJson, Changes, Jobs, ScenarioName, Verbose


def advise(
    scenario: ScenarioName,
    goal: Annotated[
        str,
        typer.Option(metavar="NUMBER", help="Number to improve: ttft_s.p99, requests_per_s, ..."),
    ] = "e2e_s.mean",
    repeat: Annotated[
        int,
        typer.Option(
            min=3,
            metavar="SEEDS",
            help="Seeds to search on. As many more test the result, and as many again confirm it.",
        ),
    ] = 5,
    jobs: Jobs = None,
    set_: Changes = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write advice.json, .md and .html.")
    ] = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Try vLLM's flags, alone and together, and rank what each one gains.

    kvsim runs the best setting again on new seeds, or on other parts of a trace. It prints the
    flags of `vllm serve` for that setting next to today's flags.
    """
    from kvsim.commands.answers import answer, task_runner
    from kvsim.plumbing.writing import check_writable
    from kvsim.scenario import checked_tables
    from kvsim.whatif.advice.advice import Advisor
    from kvsim.whatif.advice.advice_findings import advice_findings
    from kvsim.whatif.advice.change import goal_named

    chosen = goal_named(goal)
    if out is not None:
        check_writable(out)
    with checked_tables(scenario, set_ or []) as (table, folder), task_runner(jobs) as runner:
        advice = Advisor(table, folder, chosen, runner, repeat=repeat).advise()
    findings = advice_findings(advice, folder, runner.num_runs)
    answer(findings, as_json=as_json, out=out, name="advice", verbose=verbose, folder=folder)
