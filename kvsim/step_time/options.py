"""The inputs that a step-time form is built from."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from kvsim.plumbing.options import Options
from kvsim.step_time.form import StepTime

if TYPE_CHECKING:
    from kvsim.device import Device
    from kvsim.layout import KVLayout
    from kvsim.model import Model


class Hardware(NamedTuple):
    """The hardware of a step: a model, sharded over tensor_parallel_size devices of one kind.

    layout: the KV cache on one GPU (None: in the model's own dtype). folder: where relative paths
    start, the scenario's. data_parallel_size: copies of the attention; experts compute the tokens
    of all copies. expert_parallel: whether GPUs hold whole experts. engine, engine_version: "vllm"
    or "sglang" and which, as far as the scheduler says (None: nothing). pool_tokens: of the KV
    pool; None: not known. pipeline_layout: where the model is one stage of a pipeline, the KV cache
    of all stages. Layers may read the cache of a layer of an earlier stage. enforce_eager: whether
    the engine runs without CUDA graphs.
    """

    model: "Model"
    device: "Device"
    tensor_parallel_size: int = 1
    layout: "KVLayout | None" = None
    folder: Path = Path()
    data_parallel_size: int = 1
    expert_parallel: bool = False
    engine: str | None = None
    engine_version: str | None = None
    pool_tokens: int | None = None
    pipeline_layout: "KVLayout | None" = None
    enforce_eager: bool = False


class StepTimeOptions(Options):
    """Options of one step-time form; its fields are the keys of `[step_time]` other than `kind`.

    serves: parts of `kvsim.support` that it runs with. One that composes a step of the model's
    layers can time a pipeline stage; one that was measured on whole models cannot.
    """

    serves: ClassVar[frozenset[str]] = frozenset()

    def build(self, hardware: Hardware) -> StepTime:
        """The form for this hardware; InputError if it cannot serve it."""
        raise NotImplementedError(type(self).__name__)  # every registered form overrides this
