"""The setup of a measurement: what its log begins with."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from kvsim.backend.devices import device_of
from kvsim.backend.devices.device import AttentionKind
from kvsim.backend.shape import Shape
from kvsim.backend.stores.pooled import StoreName
from kvsim.backend.transformer.attentions import ATTENTIONS


@dataclass(frozen=True, slots=True)
class Setup:
    """The setup of a measurement.

    device: "cpu" or "cuda". graphs: steps are captured and replayed where a graph holds them; by
        default the device's own choice. rounds: passes over all plans, each in an order of its own.
        store:
    the store of the KV cache. attention: by default the device's own.
    """

    shape: Shape
    device: str = "cpu"
    block_size: int = 16
    graphs: bool | None = None
    rounds: int = 3
    seed: int = 0
    store: StoreName = "paged"
    attention: AttentionKind | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")

    @property
    def kind(self) -> AttentionKind:
        """The kind of attention."""
        return self.attention or device_of(self.device).attention

    @property
    def captures(self) -> bool:
        """Whether steps are captured in CUDA graphs where the attention and store allow it."""
        wanted = device_of(self.device).captures if self.graphs is None else self.graphs
        return wanted and ATTENTIONS[self.kind].captures != "no"

    def as_dict(self) -> dict[str, Any]:
        """The setup as a dict, for a file."""
        return {**asdict(self), "shape": self.shape.as_dict()}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """The setup from the result of `as_dict`, read from a file."""
        known = record["shape"]
        shape = {each.name: known[each.name] for each in fields(Shape) if each.name in known}
        return cls(**{**record, "shape": Shape(**shape)})
