"""From a model and a device to a calibration file: measure, fit, serve, hold out."""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.backend.calibrate.held_out import held_out_steps
from kvsim.backend.calibrate.served import Chats, Served, level_of, serve_chats
from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.measure.grid import DESIGNS, GridLimits, StepPlan, grid
from kvsim.backend.measure.measure import MeasuredSamples, Progress, Setup, measure
from kvsim.backend.measure.pace import PACE_PLAN
from kvsim.backend.simulated.shape import llama_shape
from kvsim.backend.stores.pooled import StoreName
from kvsim.memory.paged.options import Paged
from kvsim.model import Model
from kvsim.model.options import ModelOptions
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.step_time.calibrated.file import CalibrationFile, Measurement, SampleRecord
from kvsim.step_time.calibrated.fit import errors_by_kind, fit
from kvsim.step_time.calibrated.fitted import Errors
from kvsim.step_time.calibrated.identity import ModelIdentity, device_name
from kvsim.step_time.calibrated.samples import Kind, SampleRow, SampleSet

HELD_OUT = 60
SERVED_BATCHES = 2  # requests of the served run for each place in its largest batch
MEASURED_FACTS = ("device", "software", "backend", "method", "ceilings", "sentinel")


class Calibration(NamedTuple):
    """The file, and the errors of its fit on the held-out steps, by kind."""

    file: CalibrationFile
    held_out: dict[Kind, Errors]


def find_model(name: str, dtype: str | None) -> ModelOptions:
    """A built-in model, or that of a config.json; InputError if there is no such model."""
    where = {"hf_config": Path(name)} if name.endswith(".json") else {"name": name}
    options = ModelOptions.parse({**where, "dtype": dtype}, "--model")
    options.build()
    return options


def trace_steps(limits: GridLimits, count: int, seed: int) -> list[StepPlan]:
    """About `count` steps of simulated chats (ShareGPT's lengths).

    Two thirds have a load that just fills the limits' largest batch. In the others requests mostly
    come alone, since there prompts are computed by themselves.
    """
    most = limits.batches[-1]
    busy = _chat_steps(limits, most / 12, 8 * most, 2 * count // 3, seed)
    alone = _chat_steps(limits, 0.05, 40, count - 2 * count // 3, seed)
    fitted_on = {plan[:2] for plan in grid(limits)}
    return [plan for plan in dict.fromkeys(busy + alone) if plan[:2] not in fitted_on]


def _with_pace(plans: list[StepPlan], device: str) -> list[StepPlan]:
    """On a CPU the step that tells its pace is measured with the others, and again and again."""
    return plans if device.startswith("cuda") else [*plans, PACE_PLAN]


def _chat_steps(
    limits: GridLimits, rate_per_s: float, num_requests: int, count: int, seed: int
) -> list[StepPlan]:
    scenario = Scenario.load(
        "chat",
        [
            f"seed={seed}",
            "max_steps=1",
            f"memory.kv_cache_tokens={limits.pool_tokens}",
            f"scheduler.max_num_seqs={limits.batches[-1]}",
            f"scheduler.max_num_batched_tokens={limits.step_tokens}",
            f"workload.num_requests={num_requests}",
            f"workload.arrivals.rate_per_s={rate_per_s}",
        ],
    )
    paged = next(each for each in scenario.allocator if isinstance(each, Paged))
    bounds = {"step_tokens": limits.step_tokens, "pool_tokens": limits.pool_tokens}
    return held_out_steps(Simulation(scenario), paged, count, **bounds, seed=seed)


def calibrate(
    model: ModelOptions,
    device: str,
    log_path: Path,
    *,
    quick: bool = False,
    rounds: int | None = None,
    seed: int = 0,
    store: StoreName = "paged",
    served: bool = True,
    progress: Progress | None = None,
    attention: AttentionKind | None = None,
    graphs: bool | None = None,
) -> Calibration:
    """Measure `model` on "cpu" or "cuda", fit the grid's steps, and hold out those of a trace.

    The log makes it resumable; remove it when the file is safe. rounds: instead of the design's.
    store: the store of the KV cache. served: bring the samples to the level of a short served run.
    attention, graphs: by default the device's own.
    """
    limits, usual_rounds = DESIGNS[device, quick]
    plans = _with_pace(grid(limits), device) + trace_steps(limits, HELD_OUT // (1 + quick), seed)
    rounds = rounds or usual_rounds
    built = model.build()
    shape = llama_shape(built)
    setup = Setup(
        shape,
        device,
        rounds=rounds,
        seed=seed,
        store=store,
        attention=attention,
        graphs=graphs,
    )
    measured = measure(setup, plans, log_path, progress)
    run = None
    if served:
        chats = Chats(limits, seed, SERVED_BATCHES * limits.batches[-1] // (1 + quick))
        run = serve_chats(model, device, store, chats, measured.facts, attention, graphs)
    return fitted(built, measured, seed, run)


def fitted(
    model: Model, measured: MeasuredSamples, seed: int, served: Served | None = None
) -> Calibration:
    """The calibration file of a measurement: its grid fitted, its held-out steps predicted.

    Both are at the level of the steps of a served run, if there is one.
    """
    rows = tuple(SampleRow.parse(row, "sample") for row in measured.rows)
    level = None
    if served is not None:
        repeated = [row.sample() for row in rows if row.source == "grid"]
        pace_s = measured.facts["method"].get("pace_s")
        slower = served.pace_s / pace_s if served.pace_s and pace_s else 1.0
        level = level_of(fit(repeated, resamples=2, seed=seed).formula, served.steps, slower)
        rows = tuple(level.of(row) for row in rows)
    from_grid = [row.sample() for row in rows if row.source == "grid"]
    from_trace = [row.sample() for row in rows if row.source == "held-out"]
    found = fit(from_grid, seed=seed)
    held_out = errors_by_kind(found.formula, from_trace)
    facts: dict[str, Any] = {key: measured.facts[key] for key in MEASURED_FACTS}
    facts["method"] |= {
        "refused": measured.facts["refused"],
        "served": level and level._asdict(),
        "held_out_of_a_simulated_trace": {
            kind: errors.model_dump() for kind, errors in held_out.items()
        },
    }
    lines = "".join(json.dumps(row) + "\n" for row in measured.rows)
    samples = SampleSet("measured", hashlib.sha256(lines.encode()).hexdigest(), rows)
    file = CalibrationFile.now(
        source="measured by kvsim calibrate",
        device=device_name(str(measured.facts["device"]["name"])),
        model=ModelIdentity.of(model),
        measured=Measurement(**facts),
        samples=SampleRecord.of(samples),
        fit=found,
    )
    return Calibration(file, held_out)
