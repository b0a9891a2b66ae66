"""Fit the `priors` of calibration/kernels/host.json: the host's time of servers with default flags.

    python -m evidence.points.fit_prior COMPONENTS.csv [--write]

COMPONENTS.csv has one row a measurement, of any source. The columns are source, server, engine,
engine_version, cuda (1 or 0), quantised (experts: 1 or 0), layers, expert_layers and gpus.
kernels_ms is the time of `kvsim.step_time.kernels` without the host. sequences and prompt_steps are
of a decode step: those running, and steps with prompts that fall on it. measured_ms is TPOT, or a
decode step. Rows of servers without CUDA graphs are left out.

measured = kernels + layer * dense layers + expert * expert layers + workers (of several GPUs) +
sequence * sequences + prompts * prompt steps. The logarithm of simulated / measured counts, by
Huber's loss, each server the same and no source more than MOST_SERVERS. Every constant is drawn
towards USUAL by a third of its logarithm. Each source (of the two that measured dozens of servers:
each server) is then left out of a fit of all others. `spread` is where 8 of 10 rows then lie,
measured / simulated, each source with the same weight.
"""

import csv
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

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
}
Floats = NDArray[np.float64]
Constants = Mapping[str, float]


class Component(NamedTuple):
    """A row of COMPONENTS.csv (see above); times in ms."""

    source: str
    server: str
    engine: str
    version: str
    cuda: bool
    quantised: bool
    layers: int
    expert_layers: int
    gpus: int
    kernels_ms: float
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
            "layer_us": dense,
            "expert_layer_us": self.expert_layers,
            "workers_us": self.gpus > 1,
            "sequence_us": self.sequences * (self.engine != "vllm"),
            "between_us": self.sequences * between,
            "overlapped_us": self.sequences * (self.engine == "vllm" and not between),
            "prompt_layer_us": self.prompt_steps * dense,
            "prompt_expert_layer_us": self.prompt_steps * self.expert_layers,
        }
        return {name: value / 1000 for name, value in each.items()}

    def ms(self, constants: Constants) -> float:
        """Simulated time in ms with these constants."""
        return self.kernels_ms + sum(
            constants.get(name, 0.0) * part for name, part in self.parts().items()
        )


def read(path: Path) -> list[Component]:
    """All rows of the file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Component(
                source=row["source"],
                server=row["server"],
                engine=row["engine"],
                version=row["engine_version"],
                cuda=row["cuda"] == "1",
                quantised=row["quantised"] == "1",
                layers=int(row["layers"]),
                expert_layers=int(row["expert_layers"]),
                gpus=int(row["gpus"]),
                kernels_ms=float(row["kernels_ms"]),
                sequences=float(row["sequences"]),
                prompt_steps=float(row["prompt_steps"]),
                measured_ms=float(row["measured_ms"]),
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
    names = [name for name in USUAL if any(row.parts()[name] for row in rows)]
    parts = np.array([[row.parts()[name] for name in names] for row in rows])
    kernels = np.array([row.kernels_ms for row in rows])
    measured = np.array([row.measured_ms for row in rows])
    usual, share = np.array([USUAL[name] for name in names]), np.sqrt(weights(rows))

    def misses(moved: Floats) -> Floats:
        apart = np.log((kernels + parts @ (usual * np.exp(moved))) / measured)
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


def main(path: Path, *, keep: bool) -> None:
    """Print the constants and the errors with each source left out. keep: write the constants."""
    rows = read(path)
    tabled = json.loads(HOST_FILE.read_text("utf-8"))
    every = []
    for engine in ("sglang", "vllm"):
        own = [row for row in rows if row.engine == engine and row.cuda]
        constants, apart = fitted(own), left_out(own)
        every += apart
        sizes = [abs(1 / ratio - 1) for _, ratio in apart]
        sys.stdout.write(f"{engine}: {len(own)} rows, {constants}\n")
        sys.stdout.write(f"  left out: half within {100 * np.median(sizes):.1f} %\n")
        for entry in tabled["priors"]:
            if entry["engine"] == engine:
                when = "between_us" if "before" in entry else "overlapped_us"
                entry |= {name: us for name, us in constants.items() if name in entry}
                entry["sequence_us"] = constants.get(when, constants.get("sequence_us", 0.0))
    others = [row for row in rows if not row.cuda and row.quantised]
    cuda = fitted([row for row in rows if row.engine == "sglang" and row.cuda])
    extra = [
        1000 * (row.measured_ms - row.ms(cuda)) / row.expert_layers
        for row in others
        if row.sequences <= 1.5
    ]
    sys.stdout.write(f"quantised experts without CUDA: {extra} us a layer\n")
    low, high = (quantile(every, part) for part in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    sys.stdout.write(f"8 of 10 rows: measured / simulated {low:.3f} to {high:.3f}\n")
    if keep:
        if extra:
            for entry in tabled["priors"]:
                if not entry.get("cuda", True):
                    entry["quantised_expert_layer_us"] = round(float(np.median(extra)), 1)
        write(tabled, HOST_FILE)
        expected = json.loads(EXPECTED_FILE.read_text("utf-8"))
        expected.setdefault("spread", {})["tpot"] = [round(low, 3), round(high, 3)]
        EXPECTED_FILE.write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), keep="--write" in sys.argv)
