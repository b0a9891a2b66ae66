"""Closed-form TPOT of a closed loop, cheap enough for a fit that evaluates it thousands of times.

A client decodes OSL tokens in a batch with the others. Meanwhile each other client has one prompt
computed. So the mean TPOT is the decode step at the mean context, plus (clients - 1) / OSL prompts
per step. If all outputs have one length and prompts run in steps without decodes (SGLang without
mixed chunks), all clients begin and end together. A client then waits for the batches of prompts
after its own, on average half of them.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from evidence.points.rows import Point, read_points
from evidence.points.scenario import ENGINES, prepare
from kvsim.model import Experts, Model
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario
from kvsim.step import Chunk, StepShape
from kvsim.step_time.kernels.composed import KernelSteps
from kvsim.step_time.kernels.form import KernelOptions
from kvsim.step_time.kernels.host import LABELS, NOTHING
from kvsim.step_time.options import Hardware

PS_PER_MS = 1e9


@dataclass(frozen=True)
class Estimate:
    """Estimate for one point, times in ms.

    kernels_ms: TPOT by kernels alone. prompts: prompts of other clients computed per token of one
    client. layers: number of the model's layers. experts: number of MoE layers, divided by the GPUs
    that share them. shared: 1 if several GPUs share a layer's attention, else 0. overlapped:
    whether a step is scheduled while the last one runs. kind, method, device, engine, version: as
    in host.json.
    """

    point: Point
    kernels_ms: float
    clients: int
    prompts: float
    layers: int
    experts: float
    shared: int
    overlapped: bool
    kind: str
    method: str
    device: str
    engine: str
    version: str

    @property
    def labels(self) -> dict[str, str | int]:
        """The point's labels, under the names that entries of host.json use."""
        return {name: getattr(self, name) for name in LABELS}

    def tpot_ms(self, entry: Mapping[str, Any]) -> float:
        """TPOT in ms with the constants of an entry of host.json."""
        host_us = entry["step_us"] + entry["layer_us"] * self.layers
        host_us += entry["sequence_us"] * self.clients + entry["prompts_us"] * self.prompts
        host_us += entry["experts_us"] * self.experts + entry["workers_us"] * self.shared
        return float(entry["scale"] * self.kernels_ms + host_us / 1000)


class Estimator:
    """Caches the step times of servers that several points share."""

    def __init__(self) -> None:
        self._forms: dict[str, tuple[KernelSteps, Model]] = {}

    def of(self, point: Point) -> Estimate:
        """The estimate for a point; InputError if the point is refused or its kernels are not
        measured.
        """
        ready = prepare(point, "kernels")
        form, model = self._form(ready.table)
        load, scheduler = ready.table["workload"], ready.table["scheduler"]
        clients = max(1, round(load["arrivals"]["num_users"] / ready.split.copies))
        mean = (1 + ready.benchmark.shortest) / 2
        prompt, output = point.isl * mean, point.osl * mean
        context = prompt + output / 2
        decode = form.step_ps(StepShape((), clients, round(clients * context)))
        mixed = point.backend == "vllm" or scheduler.get("enable_mixed_chunk", False)
        rides = clients - 1 if mixed else 0
        most = scheduler.get("max_num_batched_tokens", scheduler.get("chunked_prefill_size", 8192))
        # A prompt of a pool is computed when it comes for the first time.
        texts = sum(pool["count"] for pool in load.get("prefixes", []))
        missed = min(1.0, texts / load["num_requests"])
        extra, prior, left = 0, 0, round(prompt)
        while left > 0:
            new = min(left, max(1, most - rides))
            step = form.step_ps(StepShape((Chunk(new, prior),), rides, round(rides * context)))
            extra += step - (decode if rides else 0)
            prior, left = prior + new, left - new
        prompts = (clients - 1) / output  # a prompt that is kept has its last token computed too
        behind = prompts * (missed or 1.0)
        if not mixed and ready.benchmark.shortest == 1:
            batches = ceil(clients * prompt / most)
            prompts = (batches - 1) / 2 / output
            behind = clients * prompts / batches
        return Estimate(
            point,
            (decode + behind * extra) / PS_PER_MS,
            clients,
            prompts,
            model.num_layers,
            sum(isinstance(layer.feed_forward, Experts) for layer in model.layers)
            / ready.split.gpus,
            int(ready.split.tensor_parallel > 1),
            bool(scheduler.get("async_scheduling", False)),
            model.kind,
            model.weight_format.method,
            ready.table["device"]["name"],
            point.backend,
            ready.table["step_time"]["engine_version"],
        )

    def _form(self, table: dict[str, Any]) -> tuple[KernelSteps, Model]:
        key = repr(
            [table["model"], table["device"], table["step_time"], table["scheduler"]["kind"]]
        )
        if key not in self._forms:
            scenario = Scenario.from_table(table)
            model, options = scenario.model.build(offline=True), scenario.model
            hardware = Hardware(
                model,
                scenario.device.build(),
                options.tensor_parallel_size,
                options.layout(model),
                Path(),
                options.data_parallel_size,
                options.enable_expert_parallel,
                scenario.scheduler.engine,
                scenario.scheduler.engine_version,
            )
            assert isinstance(scenario.step_time, KernelOptions)
            form = scenario.step_time.build(hardware, NOTHING)
            self._forms[key] = (form, model)
        return self._forms[key]


def estimates(path: Path) -> list[Estimate]:
    """Estimates for the fitting half of a table; points left out are listed on stderr."""
    estimator, points = Estimator(), []
    for point in read_points(path):
        if point.half != "fit" or point.mode != "agg" or point.backend not in ENGINES:
            continue
        try:
            points.append(estimator.of(point))
        except InputError as error:
            sys.stderr.write(f"left out: {point.id}: {error}\n")
    return points
