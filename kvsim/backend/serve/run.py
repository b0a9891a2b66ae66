"""Run a scenario for real under one allocator, and describe what ran."""

from datetime import UTC, datetime
from typing import NamedTuple

from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.measure.host import device_facts, software_facts
from kvsim.backend.measure.pace import Pace
from kvsim.backend.serve.clock import run_clock
from kvsim.backend.serve.engine import Left, RealTimeEngine
from kvsim.backend.serve.memory import StoreMemory
from kvsim.backend.serve.setup import choose_allocator, make_ready
from kvsim.backend.simulated.models import on_backend
from kvsim.backend.transformer.attentions import ATTENTIONS
from kvsim.backend.transformer.runner import DecoderRunner
from kvsim.memory.options import AllocatorOptions
from kvsim.observed.observation import Observation
from kvsim.observed.own_meta import Circumstances, ObservedMeta, RefusedRequest
from kvsim.scenario import Scenario
from kvsim.scenario.build.context_parallel import BLOCK_SIZE
from kvsim.simulation import Simulation
from kvsim.step_time.calibrated.identity import ModelIdentity
from kvsim.version import VERSION

TICK_SECONDS = 0.25


class Observed(NamedTuple):
    """A served run and its meta.json."""

    observation: Observation
    meta: ObservedMeta


def observe(
    scenario: Scenario,
    device: str,
    *,
    allocator: str | None = None,
    clock: str = "wall",
    limit: int | None = None,
    progress: Left | None = None,
    attention: AttentionKind | None = None,
    graphs: bool | None = None,
    model: str | None = None,
) -> Observed:
    """Serve the scenario's requests in real time on "cpu" or "cuda".

    allocator: the label of one of the scenario's (None: it has but one). clock: "wall", or "cpu"
    (CPU time of the engine's thread). limit: number of requests to serve, the first ones; None:
    all. attention, graphs: as for `make_ready`. model: in place of the scenario's. InputError for
    what the backend cannot do.
    """
    simulation = Simulation(on_backend(scenario, device, model))
    options, label = choose_allocator(simulation, allocator)
    make_clock = run_clock(clock, device)
    ready = make_ready(simulation, options, device, limit, attention=attention, graphs=graphs)
    before = device_facts(device)
    # Thread CPU time goes by the pace of a machine that others use as well.
    pace = None
    if clock == "cpu":
        pace = Pace(ready.runner.decoder, blocks=options.store == "blocks")
    memory = StoreMemory(ready.runner.store, device)
    engine = RealTimeEngine(
        ready.requests,
        ready.scheduler,
        ready.runner,
        ready.maker,
        memory,
        simulation.scenario.scheduler.depth - 1,
        progress,
        pace,
    )
    started = datetime.now(UTC)
    observation = engine.run(make_clock())
    ran = Circumstances(
        clock=make_clock.name,
        device=device,
        store=ready.store,
        attention=ready.runner.attention,
        started_at=started.isoformat(timespec="seconds"),
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        device_facts=before,
        load_after=device_facts(device).get("load"),
        software=software_facts(device, ATTENTIONS[ready.runner.attention].packages),
        bytes_beside_the_store=memory.beside._asdict(),
        preemptions=ready.scheduler.num_preemptions,
        recomputed_tokens=ready.scheduler.recomputed_tokens,
        swapped_bytes=ready.scheduler.swapped_bytes,
        graphs=_graphs(ready.runner),
        pace_s=pace.seconds if pace else None,
        refused=tuple(
            RefusedRequest(id=request.id, reason=str(reason))
            for request, _, reason in observation.recorder.rejected
        ),
    )
    return Observed(observation, describe(simulation, options, label, str(before["name"]), ran))


def _graphs(runner: DecoderRunner) -> dict[str, int]:
    """Counts of captured steps, and of steps with and without a graph in the run."""
    graphs = runner.graphs
    if graphs is None:
        return {}
    return {
        "captured": graphs.num_captured,
        "replayed": graphs.num_replayed,
        "eager": graphs.num_eager,
    }


def describe(
    simulation: Simulation,
    options: AllocatorOptions,
    label: str,
    gpu: str,
    ran: Circumstances,
) -> ObservedMeta:
    """The meta.json of a run of `simulation` under one allocator on the device called `gpu`."""
    scenario = simulation.scenario
    tables = scenario.model_dump(mode="json", exclude_none=True)
    return ObservedMeta(
        kvsim=VERSION,
        model=simulation.model.name,
        identity=ModelIdentity.of(simulation.model),
        gpu=gpu,
        label=label,
        max_model_len=simulation.max_model_len,
        block_size=getattr(options, "block_size", BLOCK_SIZE),
        capacity_bytes=simulation.pool.capacity_bytes,
        kv_bytes_per_token=simulation.layout.bytes_per_token,
        copy_bytes_per_s=simulation.device.bandwidth_bytes_per_s,
        host_bytes_per_s=simulation.device.host_bytes_per_s,
        allocator=options,
        scheduler=scenario.scheduler,
        seed=scenario.seed,
        workload=tables.get("workload"),
        tick_seconds=TICK_SECONDS,
        clock_ahead_s=0.0,
        source="observed by kvsim observe",
        **ran.model_dump(),
    )
