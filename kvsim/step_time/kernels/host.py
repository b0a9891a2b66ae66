"""Time of a step outside the measured kernels: launches, scheduling, small kernels.

The constants are fitted on served points (`calibration/kernels/host.json`, which names its source),
by engine and version, architecture and its layers, weights and device. Of the entries that fit a
server the most specific one counts, one of its kind of weights before others. Of several versions
the newest that is not newer than the server's is taken. An entry with `before` is of versions
before that one alone.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from kvsim.device import Device
from kvsim.model import Model
from kvsim.plumbing.shipped import shipped_folder
from kvsim.step_time.kernels.versions import version_key

HOST_FILE = shipped_folder("calibration") / "kernels" / "host.json"
LABELS = ("engine", "kind", "layers", "method", "device")


Served = Literal["", "own", "device", "kind", "fitted"]


class HostCost(NamedTuple):
    """Constants of the host's part of a step. scale: factor on the kernels' times.

    Times in us. step_us: for every step. layer_us: for each layer of the model. experts_us: for
    each layer with experts, divided by the GPUs that share it; it does not depend on the tokens.
    workers_us: for a step on several GPUs, where worker processes wait for each other. sequence_us:
    for each sequence of the step. prompts_us: for a step that computes prompts. median_error:
    median error of TPOT on the points of the fit. served: the servers on which these points were
    measured. "own": this model, weights and device. "device": this model on other devices. "kind":
    other servers of this kind (`ServerKind`). "fitted": this very server. launch_us: time to launch
    the kernels of a decode step one by one; 0 with CUDA graphs. prompt_launch_us: time to launch
    those of a step that computes prompts. Launches run ahead of the GPU, so the longer of launches
    and kernels counts.
    """

    scale: float = 1.0
    step_us: float = 0.0
    layer_us: float = 0.0
    sequence_us: float = 0.0
    prompts_us: float = 0.0
    median_error: float | None = None
    experts_us: float = 0.0
    workers_us: float = 0.0
    served: Served = ""
    launch_us: float = 0.0
    prompt_launch_us: float = 0.0


NOTHING = HostCost()


@cache
def _entries() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(HOST_FILE.read_text("utf-8"))["entries"]
    return found


def host_cost(engine: str, version: str | None, device: Device, model: Model) -> HostCost | None:
    """The host's cost of this server, if it is among the tuned and measured ones with the same
    model; else None.

    version: None for the newest that is tabulated.
    """
    labels = {
        "engine": engine,
        "kind": model.kind,
        "layers": model.num_layers,
        "method": model.weight_format.method,
        "device": device.name,
    }
    same = [entry for entry in _entries() if "layers" in entry]
    found = best_entry(same, labels, version)
    if found is None:
        return None
    constants = {name: found[name] for name in HostCost._fields if name in found}
    served: Served = "own" if found.keys() >= set(LABELS) else "device"
    return HostCost(**constants, served=served)


def best_entry(
    entries: Sequence[dict[str, Any]], labels: Mapping[str, object], version: str | None
) -> dict[str, Any] | None:
    """The entry that fits a server best; None where none does."""
    asked = version_key(version) if version else None
    fitting = [
        entry
        for entry in entries
        if all(entry[label] == labels[label] for label in LABELS if label in entry)
        and ("before" not in entry or (asked is not None and asked < version_key(entry["before"])))
    ]
    return max(fitting, key=lambda entry: _rank(entry, asked), default=None)


def _rank(entry: dict[str, Any], asked: tuple[int, ...] | None) -> tuple[Any, ...]:
    """How well an entry fits: whether it is of these weights, how much it names, then its version,
    old enough before too new.
    """
    named = "method" in entry, sum(label in entry for label in (*LABELS, "before"))
    if "since" not in entry:
        return *named, False, False, ()
    since = version_key(entry["since"])
    if asked is None or since <= asked:
        return *named, True, True, since
    return *named, True, False, tuple(-part for part in since)
