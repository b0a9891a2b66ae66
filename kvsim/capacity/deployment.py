"""A deployment: all inputs of the estimates of the pool's size."""

from typing import NamedTuple

from kvsim.capacity.adapters import Adapters
from kvsim.capacity.drafter import Drafter
from kvsim.device import Device
from kvsim.model import Model, ModelOptions
from kvsim.vllm.rules import SizingRules

# Longer models were chunked by V0 too, and so profiled by the chunk.
V0_LONGEST_WHOLE = 32_768


class Deployment(NamedTuple):
    """A model on a device, under one version of vLLM.

    version: that version's rules for the size of the pool.
    max_model_len: tokens of the longest sequence.
    max_num_seqs, max_num_batched_tokens: the scheduler's limits, which size the profiling run.
    enforce_eager: the engine captures no CUDA graphs.
    max_cudagraph_capture_size: tokens of the largest CUDA graph; None: the engine's default.
    drafter: the drafter; None: no tokens are drafted. adapters: LoRA adapters; None: none.
    flashinfer_sampler: FlashInfer samples top-p and top-k; None: as the version does by default.
    first_start: nothing that the engine compiles is cached yet.
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
    flashinfer_sampler: bool | None = None
    first_start: bool = False

    @property
    def tp(self) -> int:
        """Tensor parallel size: GPUs that each layer is split over."""
        return self.options.tensor_parallel_size

    @property
    def kv_cache_dtype(self) -> str:
        """The dtype of keys and values; for "auto" the checkpoint's, where this version uses it."""
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
        return self.version.on_second_runner(
            model.kind,
            sparse=model.is_sparse,
            quantized=model.is_quantized,
            recurrent=model.is_recurrent,
        )

    @property
    def has_flashinfer(self) -> bool:
        """Whether FlashInfer can sample: in these versions, on GPUs of NVIDIA alone (vLLM 0.33,
        v1/sample/ops/topk_topp_sampler.py).
        """
        return self.version.flashinfer_samples is not None and self.device.runs_cuda

    @property
    def compiles(self) -> bool:
        """Whether this start compiles with an empty cache, and benchmarks the compiled kernels."""
        measures = self.version.benchmarks_compiled and self.device.runs_cuda
        return self.first_start and measures and not self.enforce_eager

    @property
    def on_flashinfer(self) -> bool:
        """Whether FlashInfer samples top-p and top-k."""
        if not self.has_flashinfer:
            return False
        asked = self.flashinfer_sampler
        return bool(self.version.flashinfer_samples) if asked is None else asked
