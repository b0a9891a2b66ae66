"""`kvsim attribute`: how many sequences, tokens per second and GPUs each class of waste costs."""

from pathlib import Path
from typing import Annotated

import typer

from kvsim.commands.arguments import AsJson, Changes, ScenarioName


def attribute(
    scenario: ScenarioName,
    set_: Changes = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write attribution.json, .md and .html.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate again without each class of waste, and show what each one cost."""
    from kvsim.commands.answers import answer, status_line
    from kvsim.plumbing.writing import check_writable
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation
    from kvsim.whatif.attribution import attribute as run
    from kvsim.whatif.attribution import attribution_findings

    if out is not None:
        check_writable(out)
    simulation = Simulation(Scenario.load(scenario, set_ or []))
    with status_line() as show:
        found = run(simulation, lambda label, what: show(f"{label}, {what}"))
    findings = attribution_findings(found, simulation.resolved())
    folder = simulation.scenario.folder
    answer(findings, as_json=as_json, out=out, name="attribution", folder=folder)
