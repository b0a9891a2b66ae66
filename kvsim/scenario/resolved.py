"""The resolved scenario of a simulation: every default written out, and its provenance."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kvsim.capacity.drafter import MTP, Drafter
from kvsim.capacity.pool import SizedPool, StageShare
from kvsim.engine.replica import ReplicaSpec
from kvsim.memory.options import AllocatorOptions
from kvsim.model import Model
from kvsim.model.find import is_of_file
from kvsim.request import Stream
from kvsim.scenario import Scenario
from kvsim.step_time.drafted import DraftedTime
from kvsim.step_time.form import Corrected, Sourced, StepTime
from kvsim.version import VERSION

if TYPE_CHECKING:
    from kvsim.step_time.front_end import FrontEnd

PATH_KEYS = ("path", "hf_config", "file", "tables")


class PreparedScenario(Protocol):
    """A scenario ready to run, with its requests, model and pool (`kvsim.simulation`)."""

    scenario: Scenario
    stream: Stream
    model: Model
    max_model_len: int
    pool: SizedPool
    stages: tuple[StageShare, ...]
    labels: list[str]
    drafter: Drafter | None
    step_time: StepTime
    front_end: "FrontEnd | None"

    def replica_spec(self, options: AllocatorOptions) -> ReplicaSpec: ...


def resolved(simulation: PreparedScenario) -> dict[str, Any]:
    """The tables of a scenario that repeats this simulation exactly, with a `provenance` table.

    The provenance is kvsim's version, requests, pool, engine's defaults, source of the requests,
    notes, and measurements of the step time and the cost of drafting.
    """
    scenario, pool = simulation.scenario, simulation.pool
    meant = scenario.model_copy(update={"allocator": tuple(_allocators(simulation))})
    tables = meant.model_dump(mode="json", exclude_none=True)
    _root_paths(tables, scenario.folder)
    if simulation.max_model_len is not None:
        tables["model"]["max_model_len"] = simulation.max_model_len
    if pool.sized_by not in tables["memory"]:
        tables["memory"][pool.sized_by] = scenario.memory.utilization
    stream = simulation.stream
    tables["provenance"] = {
        "kvsim": VERSION,
        "requests": len(stream.requests),
        "pool": pool._asdict(),
        **({"stages": [each._asdict() for each in simulation.stages]} if simulation.stages else {}),
        **_engine_defaults(simulation),
        "source": dict(stream.source),
        "notes": [*stream.notes, *_assumptions(simulation)],
    }
    if isinstance(simulation.step_time, Sourced) and simulation.step_time.source:
        tables["provenance"]["step_time"] = simulation.step_time.source
    form = simulation.step_time
    if isinstance(form, DraftedTime):
        form = form.target
    if isinstance(form, Corrected) and form.served and (requests := stream.requests):
        num = len(requests)
        tables["provenance"]["served_points"] = form.served
        tables["provenance"]["mean_tokens"] = {
            "prompt": round(sum(each.prompt_tokens for each in requests) / num, 1),
            "output": round(sum(each.output_tokens for each in requests) / num, 1),
        }
    if simulation.front_end is not None:
        tables["provenance"]["front_end"] = simulation.front_end._asdict()
    if simulation.drafter is not None:
        tables["provenance"]["drafter"] = _drafter_cost(simulation)
    return tables


def _allocators(simulation: PreparedScenario) -> Iterator[AllocatorOptions]:
    """The allocators' tables with defaults filled in for their pools, and with the labels of their
    runs.
    """
    allocators = simulation.scenario.allocator
    for label, options in zip(simulation.labels, allocators, strict=True):
        meant = options.resolved(simulation.replica_spec(options).memory_spec())
        yield options if meant is options else meant.model_copy(update={"label": label})


def _engine_defaults(simulation: PreparedScenario) -> dict[str, Any]:
    """The engine's default pool size, if the scenario does not give a size."""
    memory = simulation.scenario.memory
    if simulation.pool.sized_by != "gpu_memory_utilization" or memory.gpu_memory_utilization:
        return {}
    default = f"{memory.utilization:g}, the default of vLLM {memory.engine_version}"
    return {"defaults": {"gpu_memory_utilization": default}}


def _drafter_cost(simulation: PreparedScenario) -> dict[str, Any]:
    """Memory taken by drafting, as `kvsim memory` prints it."""
    drafter, options, model = simulation.drafter, simulation.scenario.model, simulation.model
    assert drafter is not None
    dtype = options.kv_cache_dtype
    dtype = model.kv_cache_dtype if dtype == "auto" else dtype
    cost = drafter.cost(model, options.caches(model), dtype, options.tensor_parallel_size)
    return cost._asdict()


def _assumptions(simulation: PreparedScenario) -> list[str]:
    """Assumptions made for requests without max_tokens."""
    specs = [simulation.replica_spec(each) for each in simulation.scenario.allocator]
    silent = sum(request.max_tokens is None for request in simulation.stream.requests)
    if not silent or not any(spec.scheduler.weighs_max_tokens for spec in specs):
        return []
    return [
        f"{'1 request declares' if silent == 1 else f'{silent:,} requests declare'} no max_tokens: "
        "a scheduler that weighs it counts all that the context and the pool leave"
    ]


def _root_paths(table: dict[str, Any], folder: Path) -> None:
    """Make paths relative to the scenario's folder absolute, so that a stored one runs anywhere."""
    for key, value in table.items():
        if isinstance(value, dict):
            _root_paths(value, folder)
        elif isinstance(value, str) and (
            (key in PATH_KEYS and (folder / value).exists())
            or (key == "drafter" and value != MTP and is_of_file(str(folder / value)))
        ):
            table[key] = str((folder / value).resolve())
