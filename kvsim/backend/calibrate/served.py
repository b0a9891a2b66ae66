"""Step times in a served run, next to those of steps measured alone.

A step of a served run is scheduled before it and its tokens are read after it. It follows another
step and not itself, and the machine's state at that moment is random. One short run, of chats that
all come at once, measures the difference: seconds served = overhead + scale * seconds repeated. The
fit is least squares of relative errors. So the short steps of a few sequences count as much as the
long ones of many. The samples are then brought to that level.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kvsim.backend.devices import device_of
from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.measure.grid import GridLimits
from kvsim.backend.serve.run import observe
from kvsim.backend.shape import DTYPE_BYTES, Shape
from kvsim.backend.simulated.shape import llama_shape
from kvsim.backend.stores.pooled import StoreName
from kvsim.backend.transformer.attentions import block_size_of
from kvsim.model.options import ModelOptions
from kvsim.plumbing.units import PS_PER_S
from kvsim.scenario import Scenario
from kvsim.step_time.calibrated.formula import Formula, FormulaTime
from kvsim.step_time.calibrated.samples import Sample, SampleRow

ALLOCATORS: dict[StoreName, dict[str, Any]] = {
    "paged": {"kind": "paged"},
    "contiguous": {"kind": "max-buffer", "reserve": "exact"},
}
GIGA, TERA = 10**9, 10**12


class Served(NamedTuple):
    """The steps of a run, and the machine's pace in it, if it was taken."""

    steps: list[Sample]
    pace_s: float | None = None


class Level(NamedTuple):
    """How served steps differ from repeated ones: seconds served = overhead_s + scale * seconds
    repeated. steps, seconds: number and total time of the served run's steps.

    slower: the machine was slower by this factor when they were served; it is taken out.
    bias_before, mape_before: of the predictions of its steps from repeated ones; bias, mape: when
    these have been brought to the level. A bias is of all steps together.
    """

    overhead_s: float
    scale: float
    steps: int
    seconds: float
    slower: float
    bias_before: float
    mape_before: float
    bias: float
    mape: float

    def of(self, row: SampleRow) -> SampleRow:
        """A repeated sample at the level of served ones, with its spread."""

        def at(seconds: float | None) -> float | None:
            return None if seconds is None else self.overhead_s + self.scale * seconds

        return row.model_copy(
            update={
                name: at(getattr(row, name)) for name in ("seconds", "seconds_min", "seconds_p90")
            }
        )


class Chats(NamedTuple):
    """A number of chats of ShareGPT's lengths, all at once, within the measured range."""

    limits: GridLimits
    seed: int
    requests: int


def serve_chats(
    model: ModelOptions,
    device: str,
    store: StoreName,
    chats: Chats,
    facts: dict[str, Any],
    attention: AttentionKind | None = None,
    graphs: bool | None = None,
) -> Served:
    """The steps of a short run served for real, by the CPU time of its thread or on the wall clock
    of a GPU. facts: of the measurement, for the figures of the device.
    """
    limits, shape = chats.limits, llama_shape(model.build())
    table = Scenario.load("chat").model_dump(mode="json", exclude_none=True)
    ceilings = facts["ceilings"]
    longest = limits.contexts[-1]
    own = model.model_dump(mode="json", exclude_none=True)
    own["max_model_len"] = min(longest, model.model_len(model.build()))
    table |= {
        "seed": chats.seed,
        "model": own,
        "device": {
            "name": str(facts["device"]["name"]),
            "memory_gib": max(1, device_of(device).free_bytes() >> 30),
            "bandwidth_gb_per_s": ceilings["copy_bytes_per_s"] / GIGA,
            "fp16_tflops": ceilings["gemm_flop_per_s"] / TERA,
        },
        "memory": {"kv_cache_tokens": _pool_tokens(shape, device, limits)},
        "allocator": [_allocator(store, attention or device_of(device).attention)],
        "scheduler": {
            "kind": "continuous",
            "max_num_seqs": limits.batches[-1],
            "max_num_batched_tokens": limits.step_tokens // 2,
        },
        "step_time": {"kind": "roofline"},
    }
    table["workload"] |= {"num_requests": chats.requests, "arrivals": {"kind": "at-once"}}
    clock = "wall" if device.startswith("cuda") else "cpu"
    observation, meta = observe(
        Scenario.from_table(table), device, clock=clock, attention=attention, graphs=graphs
    )
    steps = [
        Sample(shape, step.end_s - step.start_s)
        for step, shape in zip(observation.steps, observation.shapes, strict=True)
    ]
    return Served(steps, meta.pace_s)


def _allocator(store: StoreName, attention: AttentionKind) -> dict[str, Any]:
    """The allocator that serves on a store, with blocks that the attention reads."""
    size = block_size_of(attention)
    return ALLOCATORS[store] | ({"block_size": size} if store == "paged" else {})


def _pool_tokens(shape: Shape, device: str, limits: GridLimits) -> int:
    """Tokens of the pool: within the limits and the memory left by weights, activations, logits."""
    element = DTYPE_BYTES[shape.dtype]
    weights = shape.layer_weight_bytes + 2 * shape.vocab * shape.hidden * element
    wide = 4 * (shape.intermediate + 2 * shape.hidden) * limits.step_tokens
    logits = 4 * shape.vocab * limits.batches[-1]
    free = device_of(device).free_bytes() - device_of(device).spare_bytes
    room = free - weights - (wide + logits) * element
    return int(min(limits.pool_tokens, max(room, 0) // shape.kv_bytes_per_token))


def level_of(formula: Formula, served: Sequence[Sample], slower: float = 1.0) -> Level:
    """The level of served steps, at least two, over what `formula` says of repeated ones.

    slower: by this factor the machine was slower when they were served; it is taken out.
    """
    time = FormulaTime(formula)
    repeated = np.asarray([time.step_ps(sample.shape) / PS_PER_S for sample in served])
    seconds = np.asarray([sample.seconds for sample in served]) / slower
    design = np.stack((1 / repeated, np.ones(len(served))), axis=1)
    (overhead, scale), *_ = np.linalg.lstsq(design, seconds / repeated, rcond=None)
    if overhead < 0 or scale <= 0:
        overhead, scale = 0.0, (seconds / repeated).mean()
    return Level(
        overhead_s=float(overhead),
        scale=float(scale),
        steps=len(served),
        seconds=float(seconds.sum()),
        slower=slower,
        bias_before=float(repeated.sum() / seconds.sum()) - 1.0,
        mape_before=float(np.abs(repeated / seconds - 1.0).mean()),
        bias=float((overhead + scale * repeated).sum() / seconds.sum()) - 1.0,
        mape=float(np.abs((overhead + scale * repeated) / seconds - 1.0).mean()),
    )
