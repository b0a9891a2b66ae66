"""The order in which a stream's prompts come."""

from collections.abc import Sequence

from kvsim.request import Request
from kvsim.results.result import Run
from kvsim.simulation import Simulation


def in_order(simulation: Simulation, run: Run | None = None) -> Sequence[Request]:
    """By arrival. Where some wait for others to leave, when those come is a run's to say: `run`, or
    one under the scenario's first allocator, without what it refuses.
    """
    requests = simulation.stream.requests
    if all(request.after is None for request in requests):
        return requests
    if run is None:
        run = simulation.run(simulation.scenario.allocator[0], simulation.labels[0])
    assert run.recorder is not None  # it has just been simulated
    came = {seq.request: seq.arrival_ps for seq in run.recorder.finished}
    return sorted(came, key=lambda request: came[request])
