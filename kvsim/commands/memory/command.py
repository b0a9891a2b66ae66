"""The options of `kvsim memory`, and the call of the library that answers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.commands.arguments import AsJson, count_of

if TYPE_CHECKING:
    from kvsim.device import Device
    from kvsim.plumbing.options import Options


# The panels of `kvsim memory --help`: each has columns of its own, so that no name is cut.
DEVICE = "GPU"
PARALLEL = "Parallelism"
MODEL = "Model"
VLLM = "vLLM's pool"
SGLANG = "SGLang's pools"
DRAFTS = "Drafts and adapters"
SHOWN = "Answer"


def memory(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Built-in name, Hugging Face id, or path of a config.json."
        ),
    ],
    device: Annotated[
        str | None,
        typer.Option(
            show_default=False, help="GPU, such as a100-80gb or h200.", rich_help_panel=DEVICE
        ),
    ] = None,
    device_memory: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Memory of the GPU in GiB, if unlisted or other than listed.",
            rich_help_panel=DEVICE,
        ),
    ] = None,
    tensor_parallel_size: Annotated[
        int, typer.Option(help="GPUs that share each layer.", rich_help_panel=PARALLEL)
    ] = 1,
    pipeline_parallel_size: Annotated[
        int, typer.Option(help="Pipeline stages.", rich_help_panel=PARALLEL)
    ] = 1,
    data_parallel_size: Annotated[
        int,
        typer.Option(
            help="Data-parallel ranks; experts span all of them.", rich_help_panel=PARALLEL
        ),
    ] = 1,
    enable_expert_parallel: Annotated[
        bool,
        typer.Option(
            "--enable-expert-parallel",
            help="Place whole experts on GPUs.",
            rich_help_panel=PARALLEL,
        ),
    ] = False,
    decode_context_parallel_size: Annotated[
        int,
        typer.Option(
            help="GPUs that share the tokens of a sequence in decode.", rich_help_panel=PARALLEL
        ),
    ] = 1,
    dtype: Annotated[
        str | None,
        typer.Option(help="Data type of weights: float16, bfloat16, ...", rich_help_panel=MODEL),
    ] = None,
    quantization: Annotated[
        str | None,
        typer.Option(
            help="Quantization of weights: none, fp8, int8, int4, nvfp4 or mxfp4.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    kv_cache_dtype: Annotated[
        str,
        typer.Option(
            help="Data type of the KV cache: bf16, fp8, nvfp4, fp8_ds_mla, int8, ...",
            rich_help_panel=MODEL,
        ),
    ] = "auto",
    gpu_memory_utilization: Annotated[
        float | None,
        typer.Option(
            show_default="0.92, before 0.20: 0.9",
            help="Share of GPU memory to use.",
            rich_help_panel=VLLM,
        ),
    ] = None,
    engine_version: Annotated[
        str,
        typer.Option(
            help="Version of vLLM, such as 0.19 or V0, to size the pool by.", rich_help_panel=VLLM
        ),
    ] = "0.33",
    kv_cache_bytes: Annotated[
        int | None, typer.Option(help="Size of the pool in bytes.", rich_help_panel=VLLM)
    ] = None,
    kv_cache_tokens: Annotated[
        int | None, typer.Option(help="Size of the pool in tokens.", rich_help_panel=VLLM)
    ] = None,
    num_gpu_blocks: Annotated[
        int | None, typer.Option(help="Size of the pool in blocks.", rich_help_panel=VLLM)
    ] = None,
    max_model_len: Annotated[
        int | None,
        typer.Option(
            show_default="the model's", help="Longest sequence in tokens.", rich_help_panel=MODEL
        ),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(
            parser=count_of,
            metavar="<int>",
            show_default="the engine's",
            help="Most sequences in a step.",
            rich_help_panel=VLLM,
        ),
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(
            parser=count_of,
            metavar="<int>",
            show_default="the engine's",
            help="Most tokens in a step.",
            rich_help_panel=VLLM,
        ),
    ] = None,
    enforce_eager: Annotated[
        bool, typer.Option("--enforce-eager", help="Run without CUDA graphs.", rich_help_panel=VLLM)
    ] = False,
    enable_prefix_caching: Annotated[
        bool | None,
        typer.Option(
            "--enable-prefix-caching",
            help="Size the pool for prefix caching.",
            show_default="the engine's",
            rich_help_panel=VLLM,
        ),
    ] = None,
    no_enable_prefix_caching: Annotated[
        bool,
        typer.Option(
            "--no-enable-prefix-caching",
            help="Size the pool without prefix caching.",
            rich_help_panel=VLLM,
        ),
    ] = False,
    mamba_ssm_cache_dtype: Annotated[
        str | None,
        typer.Option(
            show_default="the model's", help="Data type of recurrent states.", rich_help_panel=MODEL
        ),
    ] = None,
    drafter: Annotated[
        str | None,
        typer.Option(help="mtp, or the model that drafts tokens.", rich_help_panel=DRAFTS),
    ] = None,
    num_speculative_tokens: Annotated[
        int,
        typer.Option(
            parser=count_of, metavar="<int>", help="Tokens drafted ahead.", rich_help_panel=DRAFTS
        ),
    ] = 1,
    max_loras: Annotated[
        int,
        typer.Option(min=0, help="LoRA adapters to reserve memory for.", rich_help_panel=DRAFTS),
    ] = 0,
    max_lora_rank: Annotated[
        int,
        typer.Option(
            parser=count_of,
            metavar="<int>",
            help="Largest rank of an adapter.",
            rich_help_panel=DRAFTS,
        ),
    ] = 16,
    block_size: Annotated[
        int,
        typer.Option(
            parser=count_of,
            metavar="<int>",
            help="Tokens per block of the paged allocator.",
            rich_help_panel=VLLM,
        ),
    ] = 16,
    prefill_checkpoint_alignment: Annotated[
        int | None,
        typer.Option(
            parser=count_of,
            metavar="<int>",
            show_default="none saved",
            help="Tokens between the states that prefill saves (FlashInfer's gated delta net).",
            rich_help_panel=VLLM,
        ),
    ] = None,
    initial_tokens: Annotated[
        int,
        typer.Option(
            parser=count_of,
            metavar="<int>",
            help="Tokens of the doubling allocator's first buffer.",
            rich_help_panel=SHOWN,
        ),
    ] = 256,
    mem_fraction_static: Annotated[
        str | None,
        typer.Option(
            help="Size the pools as SGLang 0.5.23: a share of GPU memory, or auto.",
            rich_help_panel=SGLANG,
        ),
    ] = None,
    page_size: Annotated[
        int,
        typer.Option(
            parser=count_of, metavar="<int>", help="Tokens per page.", rich_help_panel=SGLANG
        ),
    ] = 1,
    max_running_requests: Annotated[
        int | None,
        typer.Option(
            parser=count_of, metavar="<int>", help="Most running requests.", rich_help_panel=SGLANG
        ),
    ] = None,
    chunked_prefill_size: Annotated[
        int | None,
        typer.Option(
            show_default="by the device", help="Tokens per prefill chunk.", rich_help_panel=SGLANG
        ),
    ] = None,
    max_total_tokens: Annotated[
        int | None,
        typer.Option(
            parser=count_of,
            metavar="<int>",
            help="Most tokens of the pool.",
            rich_help_panel=SGLANG,
        ),
    ] = None,
    disable_radix_cache: Annotated[
        bool,
        typer.Option(
            "--disable-radix-cache",
            help="Keep nothing of finished requests.",
            rich_help_panel=SGLANG,
        ),
    ] = False,
    swa_full_tokens_ratio: Annotated[
        float,
        typer.Option(
            help="Tokens of the window pool per token of the full pool.", rich_help_panel=SGLANG
        ),
    ] = 0.8,
    mamba_full_memory_ratio: Annotated[
        float,
        typer.Option(help="Bytes of recurrent states per byte of KV.", rich_help_panel=SGLANG),
    ] = 0.9,
    num_tokens: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Length of sequences to fit. Repeatable.", rich_help_panel=SHOWN),
    ] = None,
    as_json_: AsJson = False,
) -> None:
    """Size the KV cache of MODEL on a GPU: bytes per token, pool, sequences that fit.

    Figures are per GPU, for the pipeline stage with the fewest blocks. The last lines are those of
    the engine's start-up log. --mem-fraction-static sizes SGLang's pools.
    """
    from kvsim.capacity.memory_answer import MemoryQuestion, as_json, memory_answer
    from kvsim.capacity.options import MemoryOptions
    from kvsim.commands.memory.memory_tables import print_answer
    from kvsim.commands.memory.sglang import NOT_OF_VLLM, answer_sglang, check_engine
    from kvsim.model import ModelOptions

    path, flags = Path(model), dict(context.params)
    if no_enable_prefix_caching:
        flags["enable_prefix_caching"] = False
    is_path = path.suffix == ".json" or (path / "config.json").is_file()
    named = {"hf_config" if is_path else "name": model}
    options = ModelOptions.parse(named | _fields(ModelOptions, flags), "model")
    gpu = _device(device, device_memory)
    if check_engine(context, sglang=mem_fraction_static is not None):
        answer_sglang(options, gpu, flags, as_json=as_json_)
        return
    reserve = {name: flags[name] for name in flags if name not in NOT_OF_VLLM}
    question = MemoryQuestion(
        options,
        gpu,
        MemoryOptions.parse(_fields(MemoryOptions, reserve), "memory"),
        block_size,
        max_num_seqs,
        max_num_batched_tokens,
        num_tokens or (),
        initial_tokens,
        prefill_checkpoint_alignment,
    )
    answer = memory_answer(question)
    if as_json_:
        typer.echo(json.dumps(as_json(answer), indent=2))
    else:
        print_answer(answer)


def _fields(options: "type[Options]", flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that are keys of these options."""
    return {name: value for name, value in flags.items() if name in options.model_fields}


def _device(name: str | None, memory_gib: float | None) -> "Device":
    """The GPU asked for: listed, listed with another memory, or known by its memory alone."""
    from kvsim.device import named_device, sized_device
    from kvsim.plumbing.errors import InputError

    if memory_gib is not None:
        return sized_device(name or "device", memory_gib)
    if name is None:
        raise InputError(
            "no GPU is named", where="--device", remedy="give --device NAME or --device-memory GIB"
        )
    return named_device(name, "--device")
