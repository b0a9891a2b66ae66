"""Rows for `evidence.points.fit_prior`: measurements of servers, and the factor of each host
constant.

python -m evidence.points.components OUT.csv --points POINTS.csv --steps ENGINE=STEPS.csv ...

POINTS.csv has benchmarks in closed loops. Columns of the server: source, model, gpu, engine,
version, command. Columns of the load: isl, osl, lengths, prompts, clients. The other columns are
measured means and medians in ms. STEPS.csv has decode steps from servers' logs: source, model, gpu,
tp, engine_version, flags, kind, running, context_tokens (of a sequence) and step_ms.

`kvsim import` makes the scenario from the command. A benchmark is simulated once as it is, and once
with each of three corrections. They lengthen every step, the time of each sequence, or a step with
prompts. The differences give the factors of the constants. Rows with arrivals other than a closed
loop are left out, and so are steps with drafts.
"""

import csv
import random
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from evidence.points.fit_prior import Component
from kvsim.interchange.imported import import_sources
from kvsim.model import Experts, LatentAttention, Recurrence
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.step import Chunk, StepShape
from kvsim.step_time.kernels.composed import KernelSteps

MOST_REQUESTS, REQUESTS_A_CLIENT = 500, 5
STEP_US, SEQUENCE_US, PROMPTS_US = 1000.0, 20.0, 10_000.0  # added by the three corrections
FEW_CLIENTS = 16  # with more clients a TTFT has time in the queue
BITS = 16  # of a weight that is not quantised
KINDS = ("decode", "decode-eager")
# Models missing in the catalogue: replaced by one of the same shapes.
NAMED = {
    "Qwen/Qwen2.5-3B-Instruct (fine-tune)": "Qwen/Qwen2.5-3B-Instruct",
    "DeepSeek-R1-Distill-Qwen-32B (FP8)": "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
}
Row = Mapping[str, str]


class ImportedServer(NamedTuple):
    """The server of a row: its scenario without a workload, and its simulation with a single
    request.
    """

    table: dict[str, Any]
    simulation: Simulation

    @property
    def form(self) -> KernelSteps:
        """Step times; InputError if they are not composed of kernel times."""
        form = self.simulation.step_time
        if not isinstance(form, KernelSteps):
            raise InputError("no kernels of this server", where="step_time.kind", value="roofline")
        return form


def server(command: str, row: Row, version: str) -> ImportedServer:
    """The server that `kvsim import` makes from a command."""
    with TemporaryDirectory() as folder:
        named = {"gpu": row["gpu"], "engine_version": version or None}
        table = dict(import_sources([command], named, Path(folder) / "s.toml").scenario)
    table.pop("workload", None)
    table.setdefault("front_end", {})
    return ImportedServer(table, _simulation(table, [Request("r0", 0, 16, 16)], {}, 1))


def _simulation(
    table: Mapping[str, Any], requests: list[Request], numbers: Mapping[str, float], clients: int
) -> Simulation:
    step_time = {**table.get("step_time", {"kind": "auto"}), **numbers}
    front_end = {**table["front_end"], "clients": clients}
    whole = {**table, "step_time": step_time, "front_end": front_end}
    return Simulation(Scenario.from_table(whole), requests)


def requests_of(row: Row) -> list[Request]:
    """The requests of a benchmark; only the first ones (MOST_REQUESTS), as means need no more."""
    count, clients = int(row["prompts"]), int(row["clients"])
    isl, osl, drawn = int(row["isl"]), int(row["osl"]), row["lengths"]
    if drawn.startswith("uniform 1..N"):
        state = np.random.RandomState(1)  # the generator of sglang.bench_serving
        prompts = state.randint(1, isl + 1, size=count).tolist()
        outputs = state.randint(1, osl + 1, size=count).tolist()
    elif drawn.startswith("uniform 0.8"):
        rng = random.Random(0)
        prompts = [rng.randint(int(0.8 * isl), isl) for _ in range(count)]
        outputs = [rng.randint(int(0.8 * osl), osl) for _ in range(count)]
    else:
        prompts, outputs = [isl] * count, [osl] * count
    most = min(count, MOST_REQUESTS, max(10, REQUESTS_A_CLIENT * clients))
    return [
        Request(
            f"r{at}", 0, prompts[at], outputs[at], any_user=at >= clients,
            after=None if at < clients else f"r{at - clients}",
        )
        for at in range(most)
    ]  # fmt: skip


def components_of_point(row: Row) -> Iterator[Component]:
    """The rows of one benchmark: one for TPOT, one for TTFT if it has few clients."""
    found = server(row["command"], row, row["version"])
    requests, clients = requests_of(row), int(row["clients"])
    host = found.form.host
    front = found.simulation.front_end
    assert front is not None
    ran = [
        _latencies(_simulation(found.table, requests, numbers, clients))
        for numbers in ({}, {"overhead_us": STEP_US}, {"sequence_us": SEQUENCE_US},
                        {"prompts_us": PROMPTS_US})
    ]  # fmt: skip
    base = ran[0]
    prompt_kernels_ms = _prompt_kernels_ms(found.form, requests)
    for at, (of, names) in enumerate((("tpot", ("tpot_ms", "tpot_median_ms")),
                                      ("ttft", ("ttft_median_ms", "ttft_ms")))):  # fmt: skip
        measured = next((float(row[name]) for name in names if row[name]), None)
        if measured is None or (of == "ttft" and clients > FEW_CLIENTS):
            continue
        steps, sequences, prompts = (
            1000 * (longer[at] - base[at]) / us
            for longer, us in zip(ran[1:], (STEP_US, SEQUENCE_US, PROMPTS_US), strict=True)
        )
        waits_ps = max(0.0, host.prompt_launch_ps - prompt_kernels_ms * PS_PER_MS) * prompts
        spent_ps = host.step_ps * steps + host.sequence_ps * sequences + waits_ps
        kernels_ms = base[at] - spent_ps / PS_PER_MS
        if of == "ttft":
            kernels_ms -= front.request_ms
        parts = (prompt_kernels_ms, steps, sequences, prompts)
        yield _component(found, row, of, kernels_ms, parts, measured)


def _prompt_kernels_ms(form: KernelSteps, requests: list[Request]) -> float:
    """Time in ms of the kernels of a step that computes one prompt of mean length."""
    mean = round(sum(request.prompt_tokens for request in requests) / len(requests))
    took_ps, host = form.step_ps(StepShape((Chunk(mean, 0),), 0, 0)), form.host
    least_ps = host.step_ps + host.sequence_ps + host.prompts_ps
    if took_ps == least_ps + host.prompt_launch_ps:  # launches hide the kernels
        saved, host.prompt_launch_ps = host.prompt_launch_ps, 0
        took_ps = form.step_ps(StepShape((Chunk(mean, 0),), 0, 0))
        host.prompt_launch_ps = saved
    return (took_ps - least_ps) / PS_PER_MS


def _latencies(simulation: Simulation) -> tuple[float, float]:
    """(mean TPOT, median TTFT) in ms."""
    summary = simulation.result().runs[0].summary
    return 1e3 * summary["tpot_s"].mean, 1e3 * summary["ttft_s"].p50


def component_of_step(found: ImportedServer, row: Row, engine: str) -> Component:
    """The row of one decode step from a log."""
    running = int(row["running"])
    shape = StepShape((), running, running * int(float(row["context_tokens"])))
    host = found.form.host
    kernels_ms = (found.form.step_ps(shape) - host.step_ps - host.sequence_ps * running) / PS_PER_MS
    named = {**row, "engine": engine, "version": row["engine_version"]}
    measured = float(row["step_ms"])
    return _component(found, named, "step", kernels_ms, (0.0, 1.0, float(running), 0.0), measured)


def _component(
    found: ImportedServer,
    row: Row,
    of: str,
    kernels_ms: float,
    parts: tuple[float, float, float, float],
    measured_ms: float,
) -> Component:
    """One row of COMPONENTS.csv. parts: kernel time of a step with prompts (ms), then the numbers
    of steps, sequences and steps with prompts in the measured time.
    """
    model, options = found.simulation.model, found.simulation.scenario.model
    mixers = [layer.mixer for layer in model.layers]
    return Component(
        source=row["source"],
        server=" ".join((row["model"], row["gpu"], row.get("command") or row.get("flags", ""))),
        engine=row["engine"],
        version=row["version"],
        of=of,
        cuda=found.simulation.device.runs_cuda,
        eager=found.form.host.launch_ps > 0,
        quantised=model.weight_format.expert_bits < BITS,
        layers=model.num_layers,
        expert_layers=sum(isinstance(layer.feed_forward, Experts) for layer in model.layers),
        latent_layers=sum(isinstance(mixer, LatentAttention) for mixer in mixers),
        recurrent_layers=sum(isinstance(mixer, Recurrence) for mixer in mixers),
        gpus=options.tensor_parallel_size * options.data_parallel_size,
        kernels_ms=kernels_ms,
        prompt_kernels_ms=parts[0],
        steps=parts[1],
        sequences=parts[2],
        prompt_steps=parts[3],
        measured_ms=measured_ms,
    )


def rows_of(points: Iterable[Path], steps: Mapping[str, Path]) -> Iterator[Component]:
    """All rows of the files. Rows that cannot be simulated are left out and named on stderr."""
    for path in points:
        for row in _read(path):
            if row["clients"]:
                yield from _said(row["id"], partial(components_of_point, row))
    for engine, path in steps.items():
        for row in _read(path):
            eager = "eager" in row["kind"] or "--enforce-eager" in row["flags"]
            if row["kind"] not in KINDS or row["accept_len"]:
                continue
            yield from _said(row["source"], partial(_step, row, engine, eager))


def _step(row: Row, engine: str, eager: bool) -> list[Component]:
    found = _server_of_log(row["model"], row["gpu"], row["tp"], row["engine_version"],
                           row["flags"], engine, eager)  # fmt: skip
    return [component_of_step(found, row, engine)]


@cache
def _server_of_log(
    model: str, gpu: str, tp: str, version: str, flags: str, engine: str, eager: bool
) -> ImportedServer:
    words = [word for word in flags.split(" ") if word]
    if words and not words[0].startswith("-"):
        words = []  # a remark, no flags
    name = NAMED.get(model, model)
    if engine == "sglang":
        command = ["python3 -m sglang.launch_server --model-path", name, "--tp", tp, *words]
        command += ["--disable-cuda-graph"] * (eager and "--disable-cuda-graph" not in words)
    else:
        command = ["vllm serve", name, "--tensor-parallel-size", tp, *words]
    return server(" ".join(command), {"gpu": gpu}, version)


def _said(name: str, made: Callable[[], Iterable[Component]]) -> list[Component]:
    try:
        return list(made())
    except InputError as error:
        sys.stderr.write(f"left out: {name}: {str(error)[:120]}\n")
        return []


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main(out: Path, points: list[Path], steps: dict[str, Path]) -> None:
    """Write COMPONENTS.csv."""
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Component._fields)
        for each in rows_of(points, steps):
            writer.writerow(int(value) if isinstance(value, bool) else value for value in each)


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--points", type=Path, action="append", default=[])
    parser.add_argument("--steps", action="append", default=[])
    given = parser.parse_args()
    main(
        given.out,
        given.points,
        {engine: Path(path) for engine, _, path in (each.partition("=") for each in given.steps)},
    )
