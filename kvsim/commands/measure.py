"""`kvsim measure`: find which assumed numbers of a described load decide the answer."""

from pathlib import Path
from typing import Annotated

import typer

from kvsim.commands.arguments import AsJson, Changes, Jobs, ScenarioName, Verbose, run_command


def measure(
    scenario: ScenarioName,
    by: Annotated[
        str,
        typer.Option(
            metavar="MEASURE",
            help="The answer: a short name, or a key of summary.json, as of `kvsim sweep`.",
        ),
    ] = "e2e_p50",
    vary: Annotated[
        str | None,
        typer.Option(
            metavar="A.B=ONE,OTHER",
            help="Two values of a key. The answer is then the difference between them.",
        ),
    ] = None,
    jobs: Jobs = None,
    set_: Changes = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write measure.json, .md and .html.")
    ] = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Say what to measure of a load that is only described: which numbers decide the answer.

    kvsim halves and doubles each number of the load that the scenario assumes. It prints how far
    each one moves the answer, and the commands that read the numbers that matter from a server.
    """
    from kvsim.commands.answers import answer, task_runner
    from kvsim.plumbing.writing import check_writable
    from kvsim.scenario import checked_tables
    from kvsim.whatif.sweep.axes import parse_axis
    from kvsim.whatif.sweep.ranking import measure_named
    from kvsim.whatif.unmeasured.effects import unmeasured
    from kvsim.whatif.unmeasured.unmeasured_findings import unmeasured_findings

    chosen = measure_named(by)
    axis = None if vary is None else parse_axis(vary)
    if out is not None:
        check_writable(out)
    with checked_tables(scenario, set_ or []) as (table, folder), task_runner(jobs) as runner:
        found = unmeasured(table, folder, chosen, axis, runner)
    findings = unmeasured_findings(found, run_command(scenario, set_))
    answer(findings, as_json=as_json, out=out, name="measure", verbose=verbose, folder=folder)
