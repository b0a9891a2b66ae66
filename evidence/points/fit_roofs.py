"""Fit the rooflines by kind of kernel over all devices with tables: calibration/kernels/roofs.json.

    python -m evidence.points.fit_roofs

Least squares of the logarithms of measured and fitted times, with outliers damped; every device
counts the same. Each device is left out in turn. Its steps by constants fitted on the others are
compared with its steps by its own tables.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from kvsim.device import Device, named_device
from kvsim.model import named_model
from kvsim.model.find import find_model
from kvsim.plumbing.errors import InputError
from kvsim.step import Chunk, StepShape
from kvsim.step_time.kernels.compose import composed
from kvsim.step_time.kernels.composed import KernelSteps
from kvsim.step_time.kernels.host import NOTHING
from kvsim.step_time.kernels.parts import Kernels, ModelSplit
from kvsim.step_time.kernels.roofs import ROOFS_FILE, WORK, FittedRoofs, RoofTables
from kvsim.step_time.kernels.source import ENGINES
from kvsim.step_time.kernels.tables import SUFFIX, KernelLookup, KernelTables

FOLDER = ROOFS_FILE.parent
MOST_POINTS = 4000  # of a device, kind and dtype, drawn with SEED
SEED = 0
START = (5.0, 0.7, 0.6, 2.0)
LEAST, MOST = (0.2, 0.05, 0.05, 1.05), (200.0, 1.3, 1.3, 8.0)
SWITCHED_GB_PER_S = 100  # and more: NVLink; less: PCIe
FITTED_GROUPS = (2, 4, 8)
MODELS = (
    *(("llama-3.1-8b", 1), ("qwen3-32b", 2), ("llama-3.1-70b", 4), ("gpt-oss-120b", 2)),
    *(("minimax-m2", 4), ("llama-3.1-8b-FP8", 1), ("gemma-3-12b", 1), ("deepseek-v3", 8)),
)
SHAPES = (
    *(StepShape((), batch, batch * mean) for batch in (1, 8, 32, 128) for mean in (512, 4096)),
    *(StepShape((Chunk(tokens, 0),), 0, 0) for tokens in (512, 2048, 8192)),
)
Demand = np.ndarray[Any, Any]  # rows: seconds of bytes and of FLOPs by the peak rates, measured us

Demands = dict[tuple[str, str, str], dict[str, Demand]]  # by engine, kind, dtype; by device


class DemandRecorder(FittedRoofs):
    """Records the bytes and FLOP of each kernel that is timed."""

    def _seconds(self, moved_bytes: float, flops: float) -> float:
        peak = self.device.flops(16 if self.plain else 8)
        kept.append((moved_bytes / self.device.bandwidth_bytes_per_s, flops / peak))
        return 0.0


kept: list[tuple[float, float]] = []


def main() -> None:
    """Write the constants, the errors with each device left out, and the fitted data's facts."""
    found: dict[str, Any] = {"source": "calibration/kernels/*.npz (NOTICE), fitted by "
                             "evidence/points/fit_roofs.py", "left_out": {}}  # fmt: skip
    links, demands = _link_times(), {}
    for engine in ENGINES:
        devices = _devices(engine)
        for kind, dtype in sorted(_dtypes(engine, devices)):
            demands[engine, kind, dtype] = dict(_demands(engine, devices, kind, dtype))
    for engine in ENGINES:
        errors = {}
        for device in _devices(engine):
            fit = {"roofs": _roofs(demands, device), "links": _links(links, device)}
            errors[device] = list(_step_errors(named_device(device), engine, fit))
            _show(f"{engine}, {device} left out", errors[device])
        every = [each for listed in errors.values() for each in listed]
        _show(engine, every)
        found["left_out"][engine] = _summary(every) | {
            "by_device": {device: _summary(each) for device, each in errors.items()}
        }
    found |= {"roofs": _roofs(demands), "links": _links(links)}
    ROOFS_FILE.write_text(json.dumps(found, indent=None).replace("}, {", "},\n{") + "\n")


def _summary(errors: Sequence[float]) -> dict[str, float]:
    sizes = np.abs(errors)
    values = {"median": np.median(sizes), "mean": sizes.mean(), "bias": np.median(errors)}
    return {name: round(float(value), 3) for name, value in values.items()}


def _show(what: str, errors: Sequence[float]) -> None:
    print(what, len(errors), "steps", _summary(errors))  # noqa: T201 - a script's answer


def _dtypes(engine: str, devices: Sequence[str]) -> set[tuple[str, str]]:
    found = set()
    for device in devices:
        tables = KernelTables(FOLDER / f"{device}-{engine}{SUFFIX}", None)
        found |= {(kind, dtype) for kind in WORK for dtype in tables.dtypes(kind)}
    return found


def _demands(
    engine: str, devices: Sequence[str], kind: str, dtype: str
) -> Iterator[tuple[str, Demand]]:
    for device in devices:
        tables = KernelTables(FOLDER / f"{device}-{engine}{SUFFIX}", None)
        family = tables.family(kind, (dtype,))
        if family is None:
            continue
        record = DemandRecorder.of(named_device(device), kind, dtype, START)
        kept.clear()
        us = []
        for shape, line in family.lines.items():
            for x, time_us in zip(*line, strict=True):
                WORK[kind](record, shape, x)
                us.append(time_us)
        rows = np.column_stack([np.array(kept), us])
        order = np.random.default_rng(SEED).permutation(len(rows))[:MOST_POINTS]
        yield device, rows[order]


def _devices(engine: str) -> list[str]:
    paths = FOLDER.glob(f"*-{engine}{SUFFIX}")
    return sorted(each.stem.removesuffix(f"-{engine}") for each in paths)


def _roofs(demands: Demands, left_out: str = "") -> list[dict[str, Any]]:
    found = []
    for (engine, kind, dtype), by_device in demands.items():
        seen = [rows for device, rows in by_device.items() if device != left_out]
        if seen:
            found.append({"engine": engine, "kind": kind, "dtype": dtype,
                          "constants": _constants(seen)})  # fmt: skip
    return found


def _constants(seen: Sequence[Demand]) -> list[float]:
    """Fit the launch time in us, the shares of peak bandwidth and FLOP/s, and the sharpness of the
    knee.
    """
    rows = np.concatenate(seen)
    weights = np.concatenate([np.full(len(each), len(each) ** -0.5) for each in seen])
    moving, computing, us = rows.T

    def off(logs: Demand) -> Demand:
        start, memory, compute, knee = np.exp(logs)
        both = ((moving / memory) ** knee + (computing / compute) ** knee) ** (1 / knee)
        return np.asarray(weights * np.log((start + 1e6 * both) / us))

    best = least_squares(
        off,
        np.log(START),
        bounds=(np.log(LEAST), np.log(MOST)),
        loss="soft_l1",
        f_scale=0.3 * float(weights.mean()),
    )
    return [round(float(each), 4) for each in np.exp(best.x)]


Links = list[tuple[str, int, int, float, float]]


def _link_times() -> Links:
    """Per device: class of its link, number of GPUs, latency in us, and share of the link's
    bandwidth.
    """
    found = []
    for path in sorted(FOLDER.glob(f"*-vllm{SUFFIX}")):
        device = named_device(path.stem.removesuffix("-vllm"))
        family = KernelTables(path, None).family("all_reduce")
        least = SWITCHED_GB_PER_S if device.peer_bytes_per_s >= SWITCHED_GB_PER_S * 1e9 else 0
        for gpus in FITTED_GROUPS:
            if family is None or (gpus,) not in family.lines:
                continue
            line = family.lines[gpus,]
            elements = 2**24
            rate = 2 * 2 * (gpus - 1) / gpus * elements / (line.at(elements) * 1e-6)
            found.append((device.name, least, gpus, line.at(1024), rate / device.peer_bytes_per_s))
    return found


def _links(times: Links, left_out: str = "") -> list[dict[str, float]]:
    """Geometric means of latency and share, by class of link and number of GPUs."""
    groups: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for device, least, gpus, latency, share in times:
        if device != left_out:
            groups.setdefault((least, gpus), []).append((latency, share))
    found = []
    for (least, gpus), each in sorted(groups.items()):
        latency, share = (float(value) for value in np.exp(np.log(each).mean(axis=0)))
        found.append({"least_gb_per_s": least, "gpus": gpus, "latency_us": round(latency, 2),
                      "share": round(share, 4)})  # fmt: skip
    return found


def _step_errors(device: Device, engine: str, fit: dict[str, Any]) -> Iterator[float]:
    """Errors fitted / tabulated - 1 of each step, for the models in the device's tables."""
    for name, tp in MODELS:
        tables = KernelTables(FOLDER / f"{device.name}-{engine}{SUFFIX}", None)
        both = (tables, RoofTables(device, engine, fit))
        try:
            forms = [_form(each, device, name, tp) for each in both]
        except InputError as error:
            print(f"  {device.name}, {engine}: {error}")  # noqa: T201 - a script's answer
            continue
        measured, fitted = forms
        yield from (fitted.step_ps(shape) / measured.step_ps(shape) - 1 for shape in SHAPES)


def _form(tables: KernelLookup, device: Device, name: str, tp: int) -> KernelSteps:
    try:
        model = named_model(name)
    except InputError:
        model = find_model(name, "model", offline=True)
    kernels = Kernels(tables, device, model, ModelSplit(tp, 1, 1))
    return composed(kernels, model.kv_layout(tensor_parallel_size=tp), NOTHING)


if __name__ == "__main__":
    main()
