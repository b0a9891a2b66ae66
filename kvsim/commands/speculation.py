"""`kvsim speculation`: what speculative decoding costs in KV memory and hits, and what it gains."""

from kvsim.commands.arguments import AsJson, Changes, ScenarioName


def speculation(
    scenario: ScenarioName,
    set_: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Simulate the same requests with and without speculative decoding."""
    from kvsim.commands.answers import answer, status_line
    from kvsim.scenario import Scenario
    from kvsim.simulation import Simulation
    from kvsim.whatif.speculation import speculation_costs, speculation_findings

    simulation = Simulation(Scenario.load(scenario, set_ or []))
    with status_line() as show:
        costs = speculation_costs(simulation, show)
    findings = speculation_findings(costs, simulation.resolved())
    answer(findings, as_json=as_json, ensure_ascii=False)
