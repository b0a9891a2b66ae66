"""The identity of a calibration: its model, device and number of devices."""

from typing import Self

from kvsim.device import named_device
from kvsim.model import Attention, Dense, Model, named_model
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options

_SHAPE = (
    "num_layers",
    "hidden_size",
    "heads",
    "kv_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "dtype",
    "quantization",
)


def device_name(name: str) -> str:
    """The catalogue's name of a device; of an unknown device the name itself in lower case."""
    try:
        return named_device(name).name
    except InputError:
        return name.strip().lower()


class ModelIdentity(Options):
    """A model by name and, where known, by the shape that decides its times.

    The shape as its config.json has it; intermediate_size is that of a dense feed-forward part.
    quantization: of the weights; "none" where they are in dtype, None where it is not known.
    """

    name: str
    num_layers: int | None = None
    hidden_size: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int | None = None
    vocab_size: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_bytes_per_token: int | None = None

    @classmethod
    def of(cls, model: Model) -> Self:
        """The identity of a model, by its first attention and first feed-forward layer."""
        mixer, feed_forward = model.attention, model.layers[0].feed_forward
        plain = mixer if isinstance(mixer, Attention) else None
        dense = feed_forward if isinstance(feed_forward, Dense) else None
        return cls(
            name=model.name,
            num_layers=model.num_layers,
            hidden_size=model.hidden_size,
            heads=mixer.heads,
            kv_heads=plain and plain.kv_heads,
            head_dim=plain and plain.head_dim,
            intermediate_size=dense and dense.intermediate_size,
            vocab_size=model.vocab_size,
            dtype=model.torch_dtype,
            quantization=model.weight_format.method or "none",
            kv_bytes_per_token=model.kv_layout().bytes_per_token,
        )

    @classmethod
    def named(cls, name: str) -> Self:
        """The identity of a built-in model; of any other name, the name alone. A name without a
        quantisation leaves it open: servers quantise by a flag, too.
        """
        try:
            model = named_model(name)
            method = model.weight_format.method or None
            return cls.of(model).model_copy(update={"quantization": method})
        except InputError:
            return cls(name=name)

    def difference(self, other: Self) -> str | None:
        """The difference of two identities, in words; None if their step times must be the same.

        Shapes decide where both are known (a fine-tuned model takes the time of its base), names
        otherwise.
        """
        if self.num_layers is None or other.num_layers is None:
            mine, its = (name.rpartition("/")[2].lower() for name in (self.name, other.name))
            return None if mine == its else f"{self.name} is not {other.name}"
        for field in _SHAPE:
            mine, its = getattr(self, field), getattr(other, field)
            if mine != its and None not in (mine, its):
                return f"{self.name} has {field} {mine}, {other.name} has {its}"
        return None
