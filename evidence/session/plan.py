"""The plan of a session: a GPU and two models to measure, or a CPU and two tiny models instead."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.measure.grid import CUDA, CUDA_QUICK, GridLimits
from kvsim.backend.shape import Shape
from kvsim.backend.stores.pooled import StoreName


class Subject(NamedTuple):
    """A model, as a Hugging Face config.json with its shape, and the KV stores to measure its steps
    on.
    """

    name: str
    config: dict[str, Any]
    stores: tuple[StoreName, ...]

    def shape(self) -> Shape:
        """The model's shape in the backend's form."""
        return Shape.from_hf(self.config)

    def write(self, folder: Path) -> Path:
        """Write the model's config.json into a folder, and return its path."""
        path = folder / f"{self.name}.config.json"
        path.write_text(json.dumps(self.config, indent=1) + "\n", encoding="utf-8")
        return path


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """Devices, models and sizes of a session.

    device: torch's name. minutes: default limit of a session. attention, captures: None for the
    device's own. subjects: models; the first one is also compared and served. limits, rounds: of
    the measurements. schedules: random schedules of the proof. requests: of each served run, on a
    pool of pool_tokens, with at most max_model_len tokens each.

    kernel_shapes: number of shapes from the kernel tables, none of more than kernel_flop. tables:
    device of these tables, if not this device. calibrates: whether to fit here, scaled to a served
    run, or to leave it to `evidence.session.home`. patience: factor on a stage's minutes after
    which it is ended.
    """

    device: str
    minutes: float
    subjects: tuple[Subject, ...]
    limits: GridLimits
    rounds: int
    schedules: int
    requests: int
    rate_per_s: float
    pool_tokens: int
    max_model_len: int
    attention: AttentionKind | None = None
    captures: bool | None = None
    block_size: int = 16
    seed: int = 0
    kernel_shapes: int = 60
    kernel_flop: int = 10**13
    tables: str | None = None
    calibrates: bool = True
    patience: float = 1.0


def _llama(
    layers: int, hidden: int, heads: int, kv_heads: int, wide: int, vocab: int, dtype: str
) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": wide,
        "vocab_size": vocab,
        "max_position_embeddings": 131072,
        "torch_dtype": dtype,
    }


# The shapes of Llama-3.1-8B and Llama-3.2-1B, by their config.json.
LLAMA_8B = Subject(
    "llama-3.1-8b",
    _llama(32, 4096, 32, 8, 14336, 128256, "bfloat16"),
    ("paged", "contiguous"),
)
LLAMA_1B = Subject("llama-3.2-1b", _llama(16, 2048, 32, 8, 8192, 128256, "bfloat16"), ("paged",))

GPU = SessionPlan(
    device="cuda",
    minutes=40.0,
    subjects=(LLAMA_8B, LLAMA_1B),
    limits=CUDA,
    rounds=3,
    schedules=3,
    requests=240,
    rate_per_s=8.0,
    pool_tokens=24_576,
    max_model_len=4096,
)

STAND_IN = SessionPlan(
    device="cpu",
    minutes=40.0,
    subjects=(
        Subject("tiny", _llama(2, 32, 2, 1, 48, 61, "float32"), ("paged", "contiguous")),
        Subject("tinier", _llama(1, 32, 2, 2, 32, 61, "float32"), ("paged",)),
    ),
    limits=GridLimits((1, 2, 4), (8, 32, 64), 128, 512),
    rounds=1,
    schedules=1,
    requests=6,
    rate_per_s=1000.0,
    pool_tokens=512,
    max_model_len=128,
    attention="reference",
    captures=True,
)
# What fits fifteen minutes, ten a call: one model on blocks, the small grid.
SHORT = replace(
    GPU,
    minutes=9.0,
    subjects=(LLAMA_8B._replace(stores=("paged",)),),
    limits=CUDA_QUICK,
    rounds=2,
    schedules=1,
    requests=120,
    rate_per_s=12.0,
    calibrates=False,
)
SHORT_STAND_IN = replace(
    STAND_IN,
    minutes=9.0,
    subjects=(STAND_IN.subjects[0]._replace(stores=("paged",)),),
    rounds=2,
    kernel_shapes=6,
    kernel_flop=10**7,
    tables="h100",
    calibrates=False,
    patience=5.0,
)
PLANS = {
    "full": {"cuda": GPU, "cpu": STAND_IN},
    "short": {"cuda": SHORT, "cpu": SHORT_STAND_IN},
}
