"""The host's time of servers that were not measured, from constants for each kernel launch.

A decode step takes layer_us for each layer, expert_layer_us for each layer with experts, workers_us
if several GPUs share it, and sequence_us for each sequence. Under SGLang the kernels of a step that
computes prompts are launched one by one. However short the kernels are, such a step takes at least
the launch time of its layers, with a constant for each kind of layer. Without CUDA graphs a decode
step takes at least launch_us a layer.

The constants are fitted on servers with default flags, each server with the same weight. They are
`priors` of calibration/kernels/host.json, made by evidence/points/fit_prior.py, which also predicts
each source by a fit without it. `spread` is the range of measured / simulated TPOT of 8 of 10 such
servers.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from kvsim.device import Device
from kvsim.model import Experts, LatentAttention, Model, Recurrence
from kvsim.step_time.kernels.host import HOST_FILE, HostCost
from kvsim.step_time.kernels.versions import version_key


class ServerKind(NamedTuple):
    """Kind of a server. version: None: the newest. gpus: GPUs per step. eager: no CUDA graphs."""

    engine: str
    version: str | None
    gpus: int
    eager: bool


@cache
def _priors() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(HOST_FILE.read_text("utf-8")).get("priors", [])
    return found


def prior_entry(kind: ServerKind, device: Device) -> Mapping[str, Any] | None:
    """The first entry in the file that matches this kind; the most specific ones come first."""
    version = version_key(kind.version) if kind.version else None
    for entry in _priors():
        if (
            entry["engine"] != kind.engine
            or entry.get("cuda", device.runs_cuda) != device.runs_cuda
        ):
            continue
        if "before" in entry and (version is None or version >= version_key(entry["before"])):
            continue
        return entry
    return None


def prior_host(kind: ServerKind, device: Device, model: Model) -> HostCost:
    """The host's time of a server of this kind with this model."""
    entry = prior_entry(kind, device)
    if entry is None:
        return HostCost()
    sparse = sum(isinstance(layer.feed_forward, Experts) for layer in model.layers)
    dense = model.num_layers - sparse
    expert_us = entry["expert_layer_us"]
    if model.weight_format.expert_bits < 16:
        expert_us += entry.get("quantised_expert_layer_us", 0.0)
    step_us = entry.get("step_us", 0.0) + entry["layer_us"] * dense + expert_us * sparse
    step_us += entry["workers_us"] * (kind.gpus > 1)
    mixers = [layer.mixer for layer in model.layers]
    prompts_us = entry["prompt_layer_us"] * dense + entry["prompt_expert_layer_us"] * sparse
    prompts_us += entry.get("prompt_latent_layer_us", 0.0) * sum(
        isinstance(mixer, LatentAttention) for mixer in mixers
    )
    prompts_us += entry.get("prompt_recurrent_layer_us", 0.0) * sum(
        isinstance(mixer, Recurrence) for mixer in mixers
    )
    return HostCost(
        step_us=step_us,
        sequence_us=entry["sequence_us"] + entry.get("other_sequence_us", 0.0),
        prompt_launch_us=prompts_us,
        launch_us=entry["launch_us"] * model.num_layers if kind.eager else 0.0,
        served="kind",
    )
