"""The options of `kvsim memory`, and the call of the library that answers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.commands.arguments import AsJson

if TYPE_CHECKING:
    from kvsim.device import Device
    from kvsim.plumbing.options import Options


def memory(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="Built-in name, Hugging Face id, or path of a config.json."
        ),
    ],
    device: Annotated[
        str | None, typer.Option(help="GPU, such as a100-80gb or h200.", show_default=False)
    ] = None,
    device_memory: Annotated[
        float | None, typer.Option(min=0, help="Its memory in GiB, listed or not.")
    ] = None,
    tensor_parallel_size: Annotated[int, typer.Option(help="GPUs a layer is split over.")] = 1,
    pipeline_parallel_size: Annotated[int, typer.Option(help="Stages of layers.")] = 1,
    data_parallel_size: Annotated[int, typer.Option(help="Copies that share experts.")] = 1,
    enable_expert_parallel: Annotated[bool, typer.Option(help="Split by whole experts.")] = False,
    decode_context_parallel_size: Annotated[
        int, typer.Option(help="GPUs that share a sequence's tokens.")
    ] = 1,
    dtype: Annotated[str | None, typer.Option(help="Of weights: float16, bfloat16, ...")] = None,
    quantization: Annotated[
        str | None, typer.Option(help="Of weights: none, fp8, int8, int4, nvfp4, mxfp4.")
    ] = None,
    kv_cache_dtype: Annotated[
        str, typer.Option(help="auto, bf16, fp8, nvfp4, fp8_per_token_head, fp8_ds_mla, int8, ...")
    ] = "auto",
    gpu_memory_utilization: Annotated[
        float | None,
        typer.Option(help="Share of the device to use.", show_default="0.92, before 0.20: 0.9"),
    ] = None,
    engine_version: Annotated[
        str, typer.Option(help="Of vLLM, such as 0.19 or V0: it sizes the pool by its rules.")
    ] = "0.33",
    kv_cache_bytes: Annotated[int | None, typer.Option(help="The pool, in bytes.")] = None,
    kv_cache_tokens: Annotated[int | None, typer.Option(help="The pool, in tokens.")] = None,
    num_gpu_blocks: Annotated[int | None, typer.Option(help="The pool, in blocks.")] = None,
    max_model_len: Annotated[
        int | None, typer.Option(help="Longest sequence in tokens.", show_default="the model's")
    ] = None,
    max_num_seqs: Annotated[
        int | None, typer.Option(min=1, help="Sequences in a step.", show_default="the engine's")
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens in a step.", show_default="the engine's")
    ] = None,
    enforce_eager: Annotated[bool, typer.Option(help="Without CUDA graphs.")] = False,
    enable_prefix_caching: Annotated[
        bool | None, typer.Option(help="For the engine's blocks.", show_default="the engine's")
    ] = None,
    mamba_ssm_cache_dtype: Annotated[
        str | None, typer.Option(help="Of recurrent states.", show_default="the model's")
    ] = None,
    drafter: Annotated[str | None, typer.Option(help="mtp, or a model that drafts.")] = None,
    num_speculative_tokens: Annotated[int, typer.Option(min=1, help="Drafted ahead.")] = 1,
    max_loras: Annotated[int, typer.Option(min=0, help="Adapters to keep room for.")] = 0,
    max_lora_rank: Annotated[int, typer.Option(min=1, help="Of each.")] = 16,
    block_size: Annotated[int, typer.Option(min=1, help="Tokens in a block (paged).")] = 16,
    prefill_checkpoint_alignment: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Prefill writes states out within chunks (FlashInfer's gated delta net).",
            show_default="it cannot",
        ),
    ] = None,
    initial_tokens: Annotated[int, typer.Option(min=1, help="First buffer (doubling).")] = 256,
    mem_fraction_static: Annotated[
        str | None,
        typer.Option(help="As SGLang 0.5.23 sizes its pools: a share, or auto for its default."),
    ] = None,
    page_size: Annotated[int, typer.Option(min=1, help="Tokens in a page (SGLang).")] = 1,
    max_running_requests: Annotated[
        int | None, typer.Option(min=1, help="Requests at once (SGLang).")
    ] = None,
    chunked_prefill_size: Annotated[
        int | None, typer.Option(help="Tokens of a chunk (SGLang).", show_default="by the device")
    ] = None,
    max_total_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of the pool (SGLang).")
    ] = None,
    disable_radix_cache: Annotated[bool, typer.Option(help="Nothing is kept (SGLang).")] = False,
    swa_full_tokens_ratio: Annotated[
        float, typer.Option(help="Tokens of windows for each of the full pool (SGLang).")
    ] = 0.8,
    mamba_full_memory_ratio: Annotated[
        float, typer.Option(help="Bytes of states for each of KV (SGLang).")
    ] = 0.9,
    num_tokens: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Length of sequences to fit; may be repeated."),
    ] = None,
    as_json_: AsJson = False,
) -> None:
    """Show what MODEL's KV cache costs on a GPU: bytes per token, pool, and how many sequences fit.

    All figures are for one GPU, of the stage that holds the fewest blocks; the last lines are those
    the engine would print. With --mem-fraction-static the pools are SGLang's.
    """
    from kvsim.capacity.memory_answer import MemoryQuestion, as_json, memory_answer
    from kvsim.capacity.options import MemoryOptions
    from kvsim.commands.memory.memory_tables import print_answer
    from kvsim.commands.memory.sglang import NOT_OF_VLLM, answer_sglang, check_engine
    from kvsim.model import ModelOptions

    path, flags = Path(model), context.params
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
