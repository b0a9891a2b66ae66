"""vLLM's host times for an architecture without constants for its weights or layers.

TPOT = kernels + step + layer of the architecture * layers + sequence * clients. The time per
sequence has two values. One applies if a step is scheduled while the last one runs, the default of
vllm serve since ASYNC and a flag of benchmarks before. The other applies if a step is scheduled
between steps. The time per sequence follows from points of one server with different numbers of
clients, since all other parts of a step are equal. It is the median of these differences, each
weighted by its size in TPOT, and each server by its number of differences as in fit_host. The times
per step and per layer are then fitted to all points.

Points with kernels alone slower than MOST times the measurement have no information on the host.
They are left out (gpt-oss with 512 clients under 0.11: the server ran fewer at once).

    python -m evidence.points.fit_sequences FILE.csv

prints the median and the quartiles of every server of the fitting half.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from evidence.points.estimate import Estimate, estimates

ENGINE, ASYNC = "vllm", "0.14.0"
MOST = 2.0
LEAST = 6  # points of an architecture, and differences of servers
Entry = dict[str, object]
Server = tuple[str | int, ...]


class MoreClients(NamedTuple):
    """Two points of a server with different numbers of clients.

    client_us: time per additional client outside the kernels. share: share of the second TPOT that
    one microsecond per client makes up.
    """

    server: Server
    overlapped: bool
    client_us: float
    share: float


def server(each: Estimate) -> Server:
    """Key of a server: the properties that all of its points share, whatever their GPUs and
    lengths.
    """
    return each.version, each.kind, each.layers, each.method, each.device


def telling(points: Sequence[Estimate]) -> list[Estimate]:
    """The points that have information on ENGINE's host, of architectures with enough points."""
    told = [
        each
        for each in points
        if each.engine == ENGINE and each.kernels_ms <= MOST * each.point.silicon_tpot_ms
    ]
    kinds = Counter(each.kind for each in told)
    return [each for each in told if kinds[each.kind] >= LEAST]


def differences(points: Sequence[Estimate]) -> list[MoreClients]:
    """Pairs of points with successive numbers of clients and everything else equal."""
    groups: dict[tuple[object, ...], list[Estimate]] = {}
    for each in points:
        gpus = each.point.tp_size, each.experts, each.overlapped
        lengths = each.point.isl, each.point.osl
        groups.setdefault((*server(each), *gpus, *lengths), []).append(each)
    found = []
    for group in groups.values():
        for fewer, more in pairwise(sorted(group, key=lambda each: each.clients)):
            clients = more.clients - fewer.clients
            if clients:
                us = 1000 * (_host_ms(more) - _host_ms(fewer)) / clients
                share = clients / more.point.silicon_tpot_ms
                found.append(MoreClients(server(more), more.overlapped, us, share))
    return found


def quantile(found: Iterable[MoreClients], part: float) -> float:
    """Weighted quantile `part` of the time per additional client, in us."""
    ordered = sorted(found, key=lambda each: each.client_us)
    sizes = Counter(each.server for each in ordered)
    weights = np.cumsum([each.share / max(LEAST, sizes[each.server]) for each in ordered])
    return ordered[int(np.searchsorted(weights, part * weights[-1]))].client_us


def sequence_entries(points: Sequence[Estimate]) -> list[Entry]:
    """Two entries of host.json per architecture: for any version, and for those before ASYNC."""
    told = telling(points)
    found = differences(told)
    us = {}
    for overlapped in (True, False):
        mine = [each for each in found if each.overlapped == overlapped]
        us[overlapped] = max(0.0, quantile(mine or found, 0.5)) if found else 0.0
    if not told:
        return []
    kinds = sorted({each.kind for each in told})
    measured = np.array([each.point.silicon_tpot_ms for each in told])
    host = np.array([[1, *(each.layers * (each.kind == kind) for kind in kinds)] for each in told])
    parts = host / 1000 / measured[:, None]
    clients_ms = np.array([us[each.overlapped] * each.clients / 1000 for each in told])
    left = np.array([_host_ms(each) for each in told]) - clients_ms
    left /= measured
    sizes = Counter(map(server, told))
    slack = np.eye(len(told))
    answer = linprog(
        np.r_[np.zeros(1 + len(kinds)), [1 / max(LEAST, sizes[server(each)]) for each in told]],
        A_ub=np.block([[parts, -slack], [-parts, -slack]]),
        b_ub=np.r_[left, -left],
        bounds=(0, None),
        method="highs",
    )
    us_found = np.asarray(answer.x)[: 1 + len(kinds)]
    step_us, *layer_us = map(float, us_found)
    errors = np.abs(parts @ us_found - left)
    entries: list[Entry] = []
    for kind, of_layer in zip(kinds, layer_us, strict=True):
        own = errors[[each.kind == kind for each in told]]
        for labels, overlapped in (({}, True), ({"before": ASYNC}, False)):
            constants = {
                "scale": 1.0,
                "step_us": round(step_us, 2),
                "layer_us": round(of_layer, 2),
                "sequence_us": round(us[overlapped], 2),
                "prompts_us": 0.0,
                "experts_us": 0.0,
                "workers_us": 0.0,
                "points": len(own),
                "median_error": round(float(np.median(own)), 4),
                "mean_error": round(float(np.mean(own)), 4),
            }
            entries.append({"engine": ENGINE, "kind": kind, **labels, **constants})
    return entries


def _host_ms(each: Estimate) -> float:
    """The measured time outside the kernels, in ms."""
    return each.point.silicon_tpot_ms - each.kernels_ms


def main(path: Path) -> None:
    """Print the time per additional client, by server and by how it schedules."""
    found = differences(telling(estimates(path)))
    for overlapped in (True, False):
        sys.stdout.write(f"scheduled {'during' if overlapped else 'between'} steps\n")
        mine = [each for each in found if each.overlapped == overlapped]
        groups = {(): mine, **{each.server: [] for each in mine}}
        for each in mine:
            groups[each.server].append(each)
        for name, group in groups.items():
            low, half, high = (quantile(group, part) for part in (0.25, 0.5, 0.75))
            words = " ".join(map(str, name)) or "all"
            sys.stdout.write(f"{words}: {len(group)}, {half:.1f} us ({low:.1f} to {high:.1f})\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
