"""`kvsim attribute`: how many sequences, tokens per second and GPUs each class of waste costs."""

from kvsim.commands.arguments import AsJson, Changes, ScenarioName


def attribute(
    scenario: ScenarioName,
    set_: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Simulate again without each class of waste, and show what each one cost."""
    from kvsim.commands.answers import answer, status_line
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation
    from kvsim.whatif.attribution import attribute as run
    from kvsim.whatif.attribution import attribution_findings

    simulation = Simulation(Scenario.load(scenario, set_ or []))
    with status_line() as show:
        found = run(simulation, lambda label, what: show(f"{label}, {what}"))
    answer(attribution_findings(found, simulation.resolved()), as_json=as_json)
