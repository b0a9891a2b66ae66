"""Fit the `priors` of calibration/kernels/host.json: the host's time of servers with default flags.

python -m evidence.points.fit_prior COMPONENTS.csv [sglang] [vllm] [--write]

COMPONENTS.csv has one row for each measurement (`evidence.points.components` writes it). kernels_ms
is the time of `kvsim.step_time.kernels` without the host. prompt_kernels_ms is the kernel time of a
step with one prompt of mean length. steps, sequences and prompt_steps are the numbers of steps, of
their sequences and of steps with prompts in the measured time. measured_ms is a "tpot", a "ttft",
or a decode "step". Rows without CUDA graphs are left out.

Simulated time = kernels + each constant of the host times its factor (`Component.parts`). A step
with prompts takes the longer of its kernels and its launches. The fit minimises Huber's loss of the
logarithm of simulated / measured. Each server has the same weight, and no source counts for more
than MOST_SERVERS. Every constant is drawn towards USUAL: the logarithm of their ratio is a miss of
weight DRAWN.

Each source is then predicted by a fit to all others; of a source with more than MANY servers, each
server. `spread` is the range of measured / simulated of 8 of 10 of these rows, each source with the
same weight.
"""

import csv
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from evidence.points.host_file import write
from kvsim.step_time.kernels.expected import EXPECTED_FILE
from kvsim.step_time.kernels.host import HOST_FILE
from kvsim.step_time.kernels.versions import version_key

ASYNC = "0.14.0"  # vLLM schedules a step while the last one runs since
MOST_SERVERS = 8
MANY = 8  # servers of a source that are left out one by one
KNEE, SURE, DRAWN = 0.1, 0.2, 0.3
LEVEL = 0.8
USUAL = {
    "layer_us": 25.0,
    "expert_layer_us": 40.0,
    "workers_us": 500.0,
    "sequence_us": 40.0,
    "between_us": 40.0,
    "overlapped_us": 10.0,  # of InferenceX's vLLM servers, by fit_sequences
    "prompt_layer_us": 300.0,
    "prompt_expert_layer_us": 1000.0,
    "prompt_latent_layer_us": 300.0,  # added to that of a layer
    "prompt_recurrent_layer_us": 300.0,
    "other_sequence_us": 40.0,  # added on GPUs without CUDA
    "quantised_expert_layer_us": 200.0,  # likewise
    "request_us": 5000.0,  # front end, before the engine
}
EVERYWHERE = (
    "layer_us", "expert_layer_us", "workers_us", "prompt_layer_us", "prompt_expert_layer_us",
    "prompt_latent_layer_us", "prompt_recurrent_layer_us",
)  # fmt: skip
WITHOUT_CUDA = ("other_sequence_us", "quantised_expert_layer_us")
Floats = NDArray[np.float64]
Constants = Mapping[str, float]


class Component(NamedTuple):
    """A row of COMPONENTS.csv (see above); times in ms. cuda: an NVIDIA GPU. eager: without CUDA
    graphs. quantised: weights of experts have fewer than 16 bits. latent_layers, recurrent_layers:
    number of layers with latent attention, and with a recurrence.
    """

    source: str
    server: str
    engine: str
    version: str
    of: str
    cuda: bool
    eager: bool
    quantised: bool
    layers: int
    expert_layers: int
    latent_layers: int
    recurrent_layers: int
    gpus: int
    kernels_ms: float
    prompt_kernels_ms: float
    steps: float
    sequences: float
    prompt_steps: float
    measured_ms: float

    def parts(self) -> dict[str, float]:
        """The factor of each constant in this row, divided by 1,000 (constants are in us, times in
        ms).
        """
        dense = self.layers - self.expert_layers
        between = self.engine == "vllm" and version_key(self.version) < version_key(ASYNC)
        each = {
            "layer_us": self.steps * dense,
            "expert_layer_us": self.steps * self.expert_layers,
            "workers_us": self.steps * (self.gpus > 1),
            "sequence_us": self.sequences * (self.engine != "vllm"),
            "between_us": self.sequences * between,
            "overlapped_us": self.sequences * (self.engine == "vllm" and not between),
            "other_sequence_us": self.sequences * (not self.cuda),
            "quantised_expert_layer_us": self.steps
            * self.expert_layers
            * (self.quantised and not self.cuda),
            "request_us": float(self.of == "ttft"),
        }
        return {name: value / 1000 for name, value in each.items()}

    def launches(self) -> dict[str, float]:
        """The factor of each constant in the launch time of a step with prompts, divided by 1,000
        as in `parts`.
        """
        each = {
            "prompt_layer_us": self.layers - self.expert_layers,
            "prompt_expert_layer_us": self.expert_layers,
            "prompt_latent_layer_us": self.latent_layers,
            "prompt_recurrent_layer_us": self.recurrent_layers,
        }
        return {name: value / 1000 * bool(self.prompt_steps) for name, value in each.items()}

    def ms(self, constants: Constants) -> float:
        """Simulated time in ms with these constants."""
        parts = sum(constants.get(name, 0.0) * part for name, part in self.parts().items())
        launches = sum(constants.get(name, 0.0) * part for name, part in self.launches().items())
        waits = self.prompt_steps * max(0.0, launches - self.prompt_kernels_ms)
        return self.kernels_ms + parts + waits


def read(path: Path) -> list[Component]:
    """All rows of the file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Component._make(
                bool(int(row[name])) if kind is bool else kind(row[name])
                for name, kind in Component.__annotations__.items()
            )
            for row in csv.DictReader(file)
        ]


def weights(rows: Sequence[Component]) -> Floats:
    """(rows,) weight of each row: every server counts equally, no source for more than
    MOST_SERVERS.
    """
    servers = Counter((row.source, row.server) for row in rows)
    of_source = Counter(source for source, _ in servers)
    found: Floats = np.array([
        min(1.0, MOST_SERVERS / of_source[row.source]) / servers[row.source, row.server]
        for row in rows
    ])  # fmt: skip
    return found


def fitted(rows: Sequence[Component]) -> dict[str, float]:
    """The constants fitted to these rows, in us."""
    each = [(row.parts(), row.launches()) for row in rows]
    names = [name for name in USUAL if any(a.get(name) or b.get(name) for a, b in each)]
    parts, launches = (
        np.array([[factors[at].get(name, 0.0) for name in names] for factors in each])
        for at in (0, 1)
    )
    kernels, prompt_kernels, prompt_steps = (
        np.array([getattr(row, name) for row in rows])
        for name in ("kernels_ms", "prompt_kernels_ms", "prompt_steps")
    )
    measured = np.array([row.measured_ms for row in rows])
    usual, share = np.array([USUAL[name] for name in names]), np.sqrt(weights(rows))

    def misses(moved: Floats) -> Floats:
        constants = usual * np.exp(moved)
        waits = prompt_steps * np.maximum(0.0, launches @ constants - prompt_kernels)
        apart = np.log((kernels + parts @ constants + waits) / measured)
        huber = np.sign(apart) * KNEE * np.sqrt(2 * (np.sqrt(1 + (apart / KNEE) ** 2) - 1))
        return np.asarray(np.r_[share * huber / SURE, DRAWN * moved])

    moved = least_squares(misses, np.zeros(len(names))).x
    found = (usual * np.exp(moved)).tolist()
    return {name: round(us, 1) for name, us in zip(names, found, strict=True)}


def left_out(rows: Sequence[Component]) -> list[tuple[Component, float]]:
    """Every row with measured / simulated, by the constants fitted on all other sources."""
    servers = defaultdict(set)
    for row in rows:
        servers[row.source].add(row.server)
    groups: dict[tuple[str, str], list[Component]] = defaultdict(list)
    for row in rows:
        groups[row.source, row.server if len(servers[row.source]) > MANY else ""].append(row)
    found = []
    for group in groups.values():
        constants = fitted([row for row in rows if row not in group])
        found += [(row, row.measured_ms / row.ms(constants)) for row in group]
    return found


def quantile(found: Iterable[tuple[Component, float]], part: float) -> float:
    """Quantile `part` of measured / simulated, where each source has the same weight."""
    ordered = sorted(found, key=lambda each: each[1])
    sizes = Counter(row.source for row, _ in ordered)
    upto = np.cumsum([1 / sizes[row.source] for row, _ in ordered])
    return ordered[int(np.searchsorted(upto, part * upto[-1]))][1]


def main(path: Path, engines: Sequence[str], *, keep: bool) -> None:
    """Print the constants of these engines, and the errors for sources that were left out of the
    fit. keep: write the constants to host.json, and for several engines their spread.
    """
    rows = [row for row in read(path) if not row.eager]
    tabled = json.loads(HOST_FILE.read_text("utf-8"))
    every: list[tuple[Component, float]] = []
    errors: dict[str, dict[str, dict[str, float]]] = {}
    for engine in engines:
        own = [row for row in rows if row.engine == engine]
        constants, apart = fitted(own), left_out(own)
        every += apart
        sys.stdout.write(f"{engine}: {len(own)} rows, {constants}\n")
        for of in ("step", "tpot", "ttft"):
            sizes = [abs(1 / ratio - 1) for row, ratio in apart if row.of == of]
            if sizes:
                half = float(np.median(sizes))
                errors.setdefault(engine, {})[of] = {
                    "rows": len(sizes),
                    "median_error": round(half, 3),
                }
                sys.stdout.write(f"  left out: {len(sizes)} of {of}, half within {half:.1%}\n")
        _put(tabled, engine, constants)
    spreads = {}
    for name, kinds in (("tpot", ("tpot", "step")), ("ttft", ("ttft",))):
        found = [each for each in every if each[0].of in kinds]
        low, high = (quantile(found, part) for part in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
        spreads[name] = [round(low, 3), round(high, 3)]
        sys.stdout.write(f"8 of 10 {name}: measured / simulated {low:.3f} to {high:.3f}\n")
    if keep:
        write(tabled, HOST_FILE)
        expected = json.loads(EXPECTED_FILE.read_text("utf-8"))
        expected["priors"] = expected.get("priors", {}) | errors
        if len(engines) > 1:
            expected["spread"] |= spreads
        EXPECTED_FILE.write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


def _put(tabled: dict[str, Any], engine: str, constants: Constants) -> None:
    """Write the fitted constants into `tabled`, the tables of host.json."""
    for entry in tabled["priors"]:
        if entry["engine"] != engine:
            continue
        when = "between_us" if "before" in entry else "overlapped_us"
        entry["sequence_us"] = constants.get(when, constants.get("sequence_us", 0.0))
        names = [*EVERYWHERE, *(WITHOUT_CUDA if not entry.get("cuda", True) else ())]
        entry |= {name: constants[name] for name in names if name in constants}
    for entry in tabled["front_ends"]:
        if entry["engine"] == engine and "flags" in entry:
            entry["request_ms"] = round(constants["request_us"] / 1000, 3)


if __name__ == "__main__":
    named = [each for each in sys.argv[2:] if not each.startswith("-")]
    main(Path(sys.argv[1]), named or ["sglang", "vllm"], keep="--write" in sys.argv)
