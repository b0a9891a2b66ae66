"""The options of `kvsim memory`, grouped by the panels of its --help."""

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Annotated, Any, Literal, NamedTuple

import typer

from kvsim.commands.arguments import count_of


class Flag(NamedTuple):
    """One command-line option.

    kind: type of its value; the parser `count_of` means an integer of one or more. default: None if
    the engine or the model decides, as `shown` says in --help. more: further arguments of
    `typer.Option`.
    """

    kind: Any
    default: Any
    help: str
    shown: str | bool = True
    more: Mapping[str, Any] = {}

    def parameter(self, name: str, panel: str) -> Parameter:
        """The option as a keyword-only parameter of the command. A boolean has no --no- form."""
        switch = ["--" + name.replace("_", "-")] if self.kind is bool else []
        more = {"parser": count_of, "metavar": "<int>"} if self.kind is count_of else self.more
        look: dict[str, Any] = {"show_default": self.shown, "rich_help_panel": panel, **more}
        option = typer.Option(*switch, help=self.help, **look)
        value: Any = int if self.kind is count_of else self.kind
        if self.default is None:
            value = value | None
        annotation: Any = Annotated[value, option]
        return Parameter(name, Parameter.KEYWORD_ONLY, default=self.default, annotation=annotation)


VLLM, SGLANG, LLAMACPP = "vLLM's pool", "SGLang's pools", "llama.cpp's cache"
TRT_LLM = "TensorRT-LLM's pool"
# Each panel has columns of its own, so that no name is cut.
PANELS: dict[str, dict[str, Flag]] = {
    "Engine": {
        "engine": Flag(
            Literal["vllm", "sglang", "trt-llm", "llama.cpp", "ollama"], None,
            "vllm, sglang, trt-llm, llama.cpp or ollama; --engine NAME --help lists its options.",
            "vllm; llama.cpp for a GGUF file", {"metavar": "NAME"},
        ),
    },
    "GPU": {
        "device": Flag(str, None, "GPU, such as a100-80gb or h200.", False),
        "device_memory": Flag(
            float, None, "Memory of the GPU in GiB, if unlisted or other than listed.",
            more={"min": 0},
        ),
        "stage_device": Flag(
            list[str], None, "Pipeline stage of another GPU: 2=rtx-4090. Repeatable.", False
        ),
    },
    "Parallelism": {
        "tensor_parallel_size": Flag(int, 1, "GPUs that share each layer."),
        "pipeline_parallel_size": Flag(int, 1, "Pipeline stages."),
        "pp_layer_partition": Flag(
            str, None, "Layers of each stage, such as 16,32 (VLLM_PP_LAYER_PARTITION).", "even"
        ),
        "data_parallel_size": Flag(int, 1, "Data-parallel ranks; experts span all of them."),
        "enable_expert_parallel": Flag(bool, False, "Place whole experts on GPUs."),
        "decode_context_parallel_size": Flag(
            int, 1, "GPUs that share the tokens of a sequence in decode."
        ),
    },
    "Model": {
        "dtype": Flag(str, None, "Data type of weights: float16, bfloat16, ..."),
        "quantization": Flag(
            str, None, "Quantization of weights: none, fp8, int8, int4, awq, gptq, nvfp4 or mxfp4."
        ),
        "kv_cache_dtype": Flag(
            str, "auto", "Data type of the KV cache: bf16, fp8, nvfp4, fp8_ds_mla, int8, ..."
        ),
        "max_model_len": Flag(count_of, None, "Longest sequence in tokens.", "the model's"),
        "mamba_ssm_cache_dtype": Flag(str, None, "Data type of recurrent states.", "the model's"),
        "engine_version": Flag(
            str, None, "Version of vLLM (0.19, V0) or of SGLang (0.5.10) to size by.",
            "0.33; of SGLang 0.5.23",
        ),
        "weights_gib": Flag(
            float, None, "Weights of one GPU in GiB, as the server's log has them.", "estimated",
            more={"min": 0},
        ),
        "language_model_only": Flag(bool, False, "Leave out the encoders of images and sound."),
    },
    VLLM: {
        "gpu_memory_utilization": Flag(
            float, None, "Share of GPU memory to use.", "0.92, before 0.20: 0.9"
        ),
        "kv_cache_bytes": Flag(count_of, None, "Size of the pool in bytes."),
        "kv_cache_tokens": Flag(count_of, None, "Size of the pool in tokens."),
        "num_gpu_blocks": Flag(count_of, None, "Size of the pool in blocks."),
        "max_num_seqs": Flag(count_of, None, "Most sequences in a step.", "the engine's"),
        "max_num_batched_tokens": Flag(count_of, None, "Most tokens in a step.", "the engine's"),
        "first_start": Flag(
            bool, False, "Size a start whose compiler has nothing cached (a fresh container)."
        ),
        "enforce_eager": Flag(bool, False, "Run without CUDA graphs."),
        "enable_prefix_caching": Flag(
            bool, None, "Size the pool for prefix caching.", "the engine's"
        ),
        "no_enable_prefix_caching": Flag(bool, False, "Size the pool without prefix caching."),
        "flashinfer_sampler": Flag(
            bool,
            None,
            "Sample with FlashInfer. VLLM_USE_FLASHINFER_SAMPLER sets it.",
            "the engine's",
        ),
        "no_flashinfer_sampler": Flag(bool, False, "Sample without FlashInfer."),
        "block_size": Flag(count_of, 16, "Tokens per block of the paged allocator."),
        "prefill_checkpoint_alignment": Flag(
            count_of,
            None,
            "Tokens between the states that prefill saves (FlashInfer's gated delta net).",
            "none saved",
        ),
    },
    "Drafts and adapters": {
        "drafter": Flag(str, None, "mtp, or the model that drafts: its name or config.json."),
        "num_speculative_tokens": Flag(count_of, 1, "Tokens drafted ahead."),
        "max_loras": Flag(int, 0, "LoRA adapters to reserve memory for.", more={"min": 0}),
        "max_lora_rank": Flag(count_of, 16, "Largest rank of an adapter."),
    },
    "Answer": {
        "initial_tokens": Flag(count_of, 256, "Tokens of the doubling allocator's first buffer."),
        "num_tokens": Flag(
            list[int], None, "Length of sequences to fit. Repeatable.",
            more={"parser": count_of, "metavar": "<int>"},
        ),
    },
    SGLANG: {
        "mem_fraction_static": Flag(
            str, None, "Share of GPU memory for weights and pools, or auto.", "auto"
        ),
        "page_size": Flag(count_of, 1, "Tokens per page."),
        "max_running_requests": Flag(count_of, None, "Most running requests."),
        "chunked_prefill_size": Flag(int, None, "Tokens per prefill chunk.", "by the device"),
        "max_total_tokens": Flag(count_of, None, "Most tokens of the pool."),
        "disable_radix_cache": Flag(bool, False, "Keep nothing of finished requests."),
        "swa_full_tokens_ratio": Flag(
            float, 0.8, "Tokens of the window pool per token of the full pool."
        ),
        "mamba_full_memory_ratio": Flag(float, 0.9, "Bytes of recurrent states per byte of KV."),
    },
    TRT_LLM: {
        "free_gpu_memory_fraction": Flag(
            str, None, "Share of what is free, or auto (0.9).", "auto"
        ),
        "tokens_per_block": Flag(count_of, 32, "Tokens per block."),
        "max_tokens": Flag(count_of, None, "Most tokens of the pool."),
        "max_gpu_total_bytes": Flag(count_of, None, "Most bytes of the pool."),
        "max_batch_size": Flag(count_of, 2048, "Most sequences in a step."),
        "max_num_tokens": Flag(count_of, 8192, "Most tokens in a step."),
    },
    LLAMACPP: {
        "ctx_size": Flag(
            count_of, None, "Tokens of all slots; of ollama, of each.", "the model's"
        ),
        "parallel": Flag(count_of, None, "Slots.", "4 that share one buffer; of ollama, 1"),
        "kv_unified": Flag(bool, False, "Let all slots share one buffer."),
        "batch_size": Flag(count_of, None, "Most tokens of a batch.", "2048"),
        "ubatch_size": Flag(count_of, None, "Most tokens computed at once.", "512"),
        "cache_type_k": Flag(str, None, "Type of K: f16, q8_0, q4_0, ...", "f16"),
        "cache_type_v": Flag(str, None, "Type of V.", "f16"),
        "swa_full": Flag(bool, False, "Keep every token in layers with a window."),
        "flash_attn": Flag(
            Literal["on", "off", "auto"], "auto", "Whether flash attention is used."
        ),
        "n_gpu_layers": Flag(int, None, "Layers on GPUs, the output one of them.", "all",
            more={"min": 0}),
        "tensor_split": Flag(str, None, "Shares of several GPUs, such as 3,1.", "one GPU"),
    },
}  # fmt: skip
SHARED = ("Engine", "GPU", "Parallelism", "Model")
# The panels with the options that the pool of each engine has.
PANELS_OF: dict[str, tuple[str, ...]] = {
    "vllm": (*SHARED, VLLM, "Drafts and adapters", "Answer"),
    "sglang": (*SHARED, SGLANG),
    "trt-llm": (*SHARED, TRT_LLM),
    "llama.cpp": ("Engine", LLAMACPP),
    "ollama": ("Engine", LLAMACPP),
}


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its `**flags` replaced by every option of PANELS."""
    own = [each for each in signature(command).parameters.values() if each.name != "flags"]
    for panel, group in PANELS.items():
        own += [flag.parameter(name, panel) for name, flag in group.items()]
    command.__signature__ = signature(command).replace(parameters=own)  # type: ignore[attr-defined]
    return command
