"""The order in which prompts arrive, at one engine or at each replica of a fleet."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kvsim.request import Request, Stream
from kvsim.results.result import Run
from kvsim.simulation import Simulation


def in_order(simulation: Simulation, run: Run | None = None) -> Sequence[Request]:
    """The requests by arrival time.

    If requests follow others (`after`), their arrival times come from `run`. Without `run` they
    come from a simulation under the scenario's first allocator, without the requests that it
    refuses.
    """
    requests = simulation.stream.requests
    if not _follow(requests):
        return requests
    return _by_arrival([run] if run is not None else _runs(simulation))


def each_in_order(simulation: Simulation) -> list[Sequence[Request]]:
    """`in_order` for each engine: in a fleet, the requests that a run's router sends to it."""
    if simulation.fleet is None:
        return [in_order(simulation)]
    runs, asked = _runs(simulation), simulation.stream
    if _follow(asked.requests):
        return [_by_arrival([each]) for each in runs]
    return [came_to(each, asked).requests for each in runs]


def came_to(run: Run, asked: Stream) -> Stream:
    """The requests of a stream that were routed to one engine, served or refused."""
    assert run.recorder is not None  # it has just been simulated
    recorder = run.recorder
    names = {each.id for each in recorder.finished.requests}
    names.update(each.id for each, *_ in recorder.rejected)
    return replace(asked, requests=tuple(each for each in asked.requests if each.id in names))


def _follow(requests: Iterable[Request]) -> bool:
    return any(request.after is not None for request in requests)


def _by_arrival(runs: Iterable[Run]) -> Sequence[Request]:
    came: dict[Request, int] = {}
    for run in runs:
        assert run.recorder is not None
        came |= {seq.request: seq.arrival_ps for seq in run.recorder.finished}
    return sorted(came, key=lambda request: came[request])


def _runs(simulation: Simulation) -> Sequence[Run]:
    """Runs of the first allocator, one for each engine."""
    options, label = simulation.scenario.allocator[0], simulation.labels[0]
    if simulation.fleet is None:
        return (simulation.run(options, label),)
    return simulation.fleet.runs(options, label, simulation.stream).runs
