"""What is started: everything that the estimates of the pool are functions of."""

from typing import NamedTuple

from kvsim.capacity.adapters import Adapters
from kvsim.capacity.drafter import Drafter
from kvsim.device import Device
from kvsim.model import Model, ModelOptions
from kvsim.vllm.rules import SizingRules

# Longer models were chunked by V0 too, and so profiled by the chunk.
V0_LONGEST_WHOLE = 32_768


class Deployment(NamedTuple):
    """A model on a device, under one version of the engine.

    max_num_seqs, max_num_batched_tokens: the scheduler's limits, which size the profiling run.
    max_model_len: tokens of the longest sequence. enforce_eager: without CUDA graphs.
    max_cudagraph_capture_size: tokens of the largest one; None: the engine's default. drafter: that
    drafts ahead, adapters: that may be loaded beside it.
    """

    model: Model
    options: ModelOptions
    device: Device
    version: SizingRules
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    enforce_eager: bool = False
    max_cudagraph_capture_size: int | None = None
    drafter: Drafter | None = None
    adapters: Adapters | None = None

    @property
    def tp(self) -> int:
        """GPUs each layer is split over."""
        return self.options.tensor_parallel_size

    @property
    def kv_cache_dtype(self) -> str:
        """What keys and values are kept in: for "auto", what the checkpoint asks for, where this
        version heeds it.
        """
        asked = self.options.kv_cache_dtype
        if asked != "auto":
            return asked
        model = self.model
        return model.kv_cache_dtype if self.version.heeds_kv_cache_dtype else model.torch_dtype

    @property
    def expert_shards(self) -> int:
        """GPUs over which the routed experts are split."""
        return self.tp * self.options.data_parallel_size

    @property
    def profiled_tokens(self) -> int:
        """Tokens of the profiling run's forward pass."""
        if self.version.profiles_whole_length and self.max_model_len <= V0_LONGEST_WHOLE:
            return max(self.max_model_len, self.max_num_batched_tokens)
        return self.max_num_batched_tokens

    @property
    def on_second_runner(self) -> bool:
        """Whether the second model runner serves it."""
        model = self.model
        return self.version.on_second_runner(model.kind, model.is_sparse, model.is_quantized)
