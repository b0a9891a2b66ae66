"""The order in which the prompts of a stream arrive."""

from collections.abc import Sequence

from kvsim.request import Request
from kvsim.results.result import Run
from kvsim.simulation import Simulation


def in_order(simulation: Simulation, run: Run | None = None) -> Sequence[Request]:
    """The requests by arrival. Where requests follow others (`after`), their arrivals are those of
    `run`, or of a run under the scenario's first allocator, without the requests that it refuses.
    """
    requests = simulation.stream.requests
    if all(request.after is None for request in requests):
        return requests
    if run is None:
        run = simulation.run(simulation.scenario.allocator[0], simulation.labels[0])
    assert run.recorder is not None  # it has just been simulated
    came = {seq.request: seq.arrival_ps for seq in run.recorder.finished}
    return sorted(came, key=lambda request: came[request])
