"""Calibration of a model on a device: measure, fit, serve, hold out."""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from kvsim.backend.calibrate.held_out import held_out_steps
from kvsim.backend.calibrate.served import Chats, Served, level_of, serve_chats
from kvsim.backend.devices import device_of
from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.measure.grid import DESIGNS, GridLimits, StepPlan, grid
from kvsim.backend.measure.measure import Progress, measure
from kvsim.backend.measure.pace import PACE_PLAN
from kvsim.backend.measure.setup import Setup
from kvsim.backend.measure.summary import MeasuredSamples
from kvsim.backend.simulated.shape import check_weights, llama_shape
from kvsim.backend.stores.pooled import StoreName
from kvsim.backend.transformer.attentions import block_size_of
from kvsim.backend.transformer.products import check_products
from kvsim.memory.paged.options import Paged
from kvsim.model import Model
from kvsim.model.options import ModelOptions
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.step_time.calibrated.file import CalibrationFile
from kvsim.step_time.calibrated.fit import fit
from kvsim.step_time.calibrated.fitted import Errors
from kvsim.step_time.calibrated.identity import ModelIdentity, device_name
from kvsim.step_time.calibrated.measured import measured_file, parts_of
from kvsim.step_time.calibrated.samples import Kind, SampleRow, SampleSet

HELD_OUT = 60
SERVED_BATCHES = 2  # requests of the served run for each place in its largest batch


class Calibration(NamedTuple):
    """The file, and the errors of its fit on the held-out steps, by kind."""

    file: CalibrationFile
    held_out: dict[Kind, Errors]


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
    """Add the pace step on a CPU, where it is measured and also repeated as the sentinel."""
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

    The log makes the measurement resumable; remove the log when the file is safe. rounds: instead
    of the design's. store: the store of the KV cache. served: bring the samples to the level of a
    short served run. attention, graphs: by default the device's own.
    """
    limits, usual_rounds = DESIGNS[device, quick]
    plans = _with_pace(grid(limits), device) + trace_steps(limits, HELD_OUT // (1 + quick), seed)
    rounds = rounds or usual_rounds
    built = model.build()
    check_weights(built)
    shape = llama_shape(built)
    check_products(shape, device)
    setup = Setup(
        shape,
        device,
        rounds=rounds,
        seed=seed,
        store=store,
        block_size=block_size_of(attention or device_of(device).attention),
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
    dtype = measured.facts.get("model", {}).get("dtype", model.torch_dtype)
    if dtype != model.torch_dtype:
        raise InputError(
            f"the steps were measured in {dtype}",
            where="dtype",
            value=model.torch_dtype,
            remedy=f"fit them as a model of {dtype}",
        )
    level = None
    if served is not None:
        repeated = parts_of(rows, "samples").fitted
        pace_s = measured.facts["method"].get("pace_s")
        slower = served.pace_s / pace_s if served.pace_s and pace_s else 1.0
        level = level_of(fit(repeated, resamples=2, seed=seed).formula, served.steps, slower)
        rows = tuple(level.of(row) for row in rows)
    from_grid, from_trace = parts_of(rows, "samples")
    facts = measured.facts | {
        "method": measured.facts["method"] | {"served": level and level._asdict()}
    }
    lines = "".join(json.dumps(row) + "\n" for row in measured.rows)
    samples = SampleSet("measured", hashlib.sha256(lines.encode()).hexdigest(), rows)
    file, held_out = measured_file(
        samples,
        facts,
        fit(from_grid, seed=seed),
        from_trace,
        source="measured by kvsim calibrate",
        device=device_name(str(measured.facts["device"]["name"])),
        model=ModelIdentity.of(model),
    )
    return Calibration(file, held_out)
