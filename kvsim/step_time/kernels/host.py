"""What the host adds to the kernels of a step, by engine: launches, scheduling, sampling."""

from typing import NamedTuple

from kvsim.step_time.kernels.versions import version_key


class HostCost(NamedTuple):
    """In us. step: of every step; sequence: of each of its sequences; chunk: of each prompt chunk.
    layer: small kernels of a layer beside those that were measured. launch_layer: how long the
    launches of a layer take where no graph is replayed, which a step with prompts cannot go below.
    """

    step_us: float
    sequence_us: float
    chunk_us: float
    layer_us: float
    launch_layer_us: float


ENGINES: dict[str, tuple[tuple[str, HostCost], ...]] = {
    "vllm": (("0", HostCost(600.0, 10.0, 300.0, 8.0, 150.0)),),
    "sglang": (("0", HostCost(600.0, 10.0, 300.0, 8.0, 150.0)),),
}


def host_cost(engine: str, version: str | None) -> HostCost:
    """Of the newest tabulated version that is not newer than this one; the newest without one."""
    rows = ENGINES[engine]
    if version is None:
        return rows[-1][1]
    asked = version_key(version)
    older = [cost for since, cost in rows if version_key(since) <= asked]
    return older[-1] if older else rows[0][1]
