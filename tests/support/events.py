"""How many events of the clock a run takes: fewer than steps where many steps are one."""

from typing import Any

from kvsim.engine.replica import assemble
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation


def events_and_steps(monkeypatch: Any, table: dict[str, Any]) -> tuple[int, int]:
    """Of a run under the first allocator of a scenario's tables."""
    scenario = Scenario.from_table(table)
    made = Simulation(scenario)
    replica = assemble(made.replica_spec(scenario.allocator[0]), made.stream, made.step_time)
    step, num_events = replica.env.step, 0

    def counted() -> None:
        nonlocal num_events
        num_events += 1
        step()

    monkeypatch.setattr(replica.env, "step", counted)
    replica.run()
    return num_events, replica.recorder.steps
